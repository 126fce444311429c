-- The kinds of limits, by the letter that stands before the length of a span, "w60000000" or "r30000000":
--   w  a window counts the starts within its length. A start leaves when it is as old as the window is long
--   h  hours let starts through while they are open. They count nothing and have no ledger; their units are -1, and
--     the text of the hours follows the length: "h604800000000Mon-Fri~09:00-17:00~@UTC"
--   r  a lease counts the jobs that run at once. A start leaves when its job ends, or with its lease, which may be
--     renewed
--   z  a quota counts the starts of a period of a calendar, whose text follows the length: "z86400000000day@UTC". A
--     start leaves at the end of its period, which is one sub-window
-- renewed: a grant notes its places, which the job renews and gives back; a full ledger may have room at any time.
-- settled: a settlement may correct the charge of a start, and a report of the upstream may add debts.
-- logged: the oldest of many entries lie in a log, and a ledger of many units may become coarser.
-- slides: starts leave one after the other, so the ledger shows how many units started in a span of time.
-- steps: the units of the limit may grow from period to period.
-- edged: the span's text names a calendar or hours, whose edges Redis keeps. opens: only the time decides, no units.
-- uses: edges
local KINDS = {
  h = { edged = true, opens = true },
  r = { renewed = true },
  w = { settled = true, logged = true, slides = true },
  z = { settled = true, edged = true, steps = true },
}

-- Sets the fields of a limit's or a ledger's span: kind, length and precision in us; n: how many sub-windows an entry
-- counts for; edges: the edges of its periods; offset: the ledger's time minus the clock's. Returns nil if the span is
-- invalid. A start counts for the length after it, rounded up to whole sub-windows, so that no window seems emptier
-- than it is; with a precision of 1 it counts to the microsecond.
local function with_span(counted, span, precision)
  local letter, length, calendar = string.match(span, '^(%l)(%d+)(.*)$')
  counted.kind, counted.span = KINDS[letter], span
  counted.length, counted.precision = tonumber(length), tonumber(precision)
  if not counted.kind or counted.length == 0 or counted.precision == 0 then return nil end
  if counted.kind.edged then
    counted.edges, counted.offset, counted.n = edges_of(calendar), 0, 1
    return counted
  elseif calendar ~= '' then
    return nil
  end
  counted.n = counted.precision == 1 and counted.length or math.ceil(counted.length / counted.precision) + 1
  return counted
end

-- The order of a scope key's ledgers, and of a scope's limits: hours, leases, windows, quotas, short ones first.
local function precedes(a, b)
  if a.kind == b.kind and a.length ~= b.length then return a.length < b.length end
  return a.span < b.span
end

-- The number of the sub-window of an instant, in a ledger's time. start_of: the first instant of a sub-window.
local function sub_window(counted, time)
  if counted.edges then return period_of(counted.edges, time - counted.offset) end
  return math.floor(time / counted.precision)
end

local function start_of(counted, x)
  if counted.edges then return edge_of(counted.edges, x) + counted.offset end
  return x * counted.precision
end

-- When a start at an instant leaves.
local function leaves(counted, time) return start_of(counted, sub_window(counted, time) + counted.n) end
return with_span, precedes, sub_window, start_of, leaves
