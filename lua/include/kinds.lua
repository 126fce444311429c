-- The kinds of limits, by the letter that stands before the length of a span, "w60000000" or "r30000000":
--   w  a window counts the starts within its length. A start leaves with the window
--   r  a lease counts the jobs that run at once. A start leaves when its job ends, or with its lease, which may be
--     renewed
-- renewed: a grant notes its places, which the job renews and gives back; a full ledger may have room at any time.
-- settled: a settlement corrects the charge of a start, and a report of the upstream adds debts.
-- logged: the oldest of many entries lie in a log, and a ledger of many units may become coarser.
local KINDS = {
  r = { renewed = true },
  w = { settled = true, logged = true },
}

-- Gives a limit or a ledger its span: kind, length and precision, us; n: for how many sub-windows an entry counts. A
-- start counts for the length after it, rounded up to whole sub-windows, so that no window seems emptier than it is;
-- with a precision of 1 it counts to the microsecond. Returns nil if there is no such span.
local function with_span(counted, span, precision)
  local letter, length = string.match(span, '^(%l)(%d+)$')
  counted.kind, counted.span = KINDS[letter], span
  counted.length, counted.precision = tonumber(length), tonumber(precision)
  if not counted.kind or counted.length == 0 or counted.precision == 0 then return nil end
  counted.n = counted.precision == 1 and counted.length or math.ceil(counted.length / counted.precision) + 1
  return counted
end

-- The order of a scope key's ledgers, and of a scope's limits: leases before windows, short ones first.
local function precedes(a, b)
  if a.kind ~= b.kind then return a.span < b.span end
  return a.length < b.length
end

-- The sub-window of an instant, in a ledger's time, and the first instant of a sub-window.
local function sub_window(counted, time) return math.floor(time / counted.precision) end
local function start_of(counted, x) return x * counted.precision end
return with_span, precedes, sub_window, start_of
