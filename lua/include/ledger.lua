-- The ledgers of a scope key, in the order of kinds.lua. In the text of the scope key each is
--   span precision since spent booked tail ahead passed logged \n
-- and then two texts of entries: the newest spent units, tail bytes long, and the booked units, ahead bytes long.
-- since: from when the ledger counts, us, by its own time.
-- Spent units that are older than the tail lie in the log "ledger:<name>:<span>", logged bytes of entries, of which the
-- first passed bytes have left the window.
-- uses: kinds, entries
local function new_ledger(key, span, precision, since)
  local ledger = with_span({
    since = since, spent = 0, booked = 0, tail = '', ahead = '', passed = 0, logged = 0, trimmed = false,
    old = false, promised = false, searches = {}, current = 0, -- what placing.lua has read, and where it has searched
  }, span, precision)
  if ledger and ledger.edges then ledger.offset = key.offset end
  return ledger
end

local function log_of(key, ledger) return prefix .. 'ledger:' .. key.name .. ':' .. ledger.span end

-- So many bytes of the log at most, from a byte on.
local function read_log(key, ledger, from, most)
  local to = min(from + most, ledger.logged)
  return from < to and call('GETRANGE', log_of(key, ledger), format('%d', from), format('%d', to - 1)) or ''
end

local function parse_ledgers(key, text, at)
  local count = 0
  while at <= #text do
    local span, precision, since, spent, booked, tail, rest, from =
      match(text, '^(%l%d+%S*) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+ %d+ %d+)\n()', at)
    local ledger = from and new_ledger(key, span, precision, tonumber(since))
    if not ledger then error('FOREIGN key:' .. key.name, 0) end
    ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
    at = from + tail
    ledger.tail = sub(text, from, at - 1)
    if rest ~= '0 0 0' then
      local ahead, passed, logged = match(rest, '^(%d+) (%d+) (%d+)$')
      ledger.ahead = sub(text, at, at + ahead - 1)
      ledger.passed, ledger.logged, at = tonumber(passed), tonumber(logged), at + ahead
    end
    count = count + 1
    key[count] = ledger
  end
end

-- Counts the units of a lost log with the oldest of the tail, or from now on: for longer than before, so that no window
-- gets more than its limit.
local function mend(key, ledger)
  local at, units = {}, {}
  list_of(ledger.tail, at, units)
  local lost = ledger.spent
  for i = 1, #units do lost = lost - units[i] end
  key.dirty, key.touched = true, true
  ledger.tail = add(ledger.tail, at[1] or sub_window(ledger, now + key.shift), lost)
  ledger.passed, ledger.logged = 0, 0
end

-- How many bytes of entries are older than an edge, and how many units these are.
local function older(text, edge)
  local i, units = 1, 0
  while i < #text and sub(text, i, i + 15) < edge do
    units = units + tonumber(sub(text, i + 16, i + 31))
    i = i + 32
  end
  return i - 1, units
end

-- Subtracts entries that have left the window: each leaves once. Forgets bookings whose grace is over.
local function trim(key, ledger)
  if ledger.trimmed then return end
  ledger.trimmed = true
  local t = now + key.shift
  local edge = format('%016d', sub_window(ledger, t) - ledger.n + 1)
  while ledger.passed < ledger.logged do
    local chunk = read_log(key, ledger, ledger.passed, 1024)
    if chunk == '' then mend(key, ledger) end
    local bytes, units = older(chunk, edge)
    if bytes == 0 then break end
    key.dirty, key.touched, ledger.passed, ledger.spent = true, true, ledger.passed + bytes, ledger.spent - units
    if bytes < #chunk then break end
  end
  if ledger.passed >= ledger.logged then
    local bytes, units = older(ledger.tail, edge)
    if bytes > 0 then key.dirty, key.touched, ledger.tail = true, true, sub(ledger.tail, bytes + 1) end
    ledger.spent = ledger.spent - units
  end
  local bytes, units = older(ledger.ahead, format('%016d', sub_window(ledger, max(0, t - grace))))
  if bytes > 0 then key.dirty, key.touched, ledger.ahead = true, true, sub(ledger.ahead, bytes + 1) end
  ledger.booked = ledger.booked - units
end

-- The sub-window of the last of some entries; nil without entries.
local function last_of(text) return tonumber(sub(text, -32, -17)) end

-- Whether a ledger counts nothing: its last start has left, and the grace of its last booking is over.
local function is_empty(key, ledger)
  local t = now + key.shift
  if ledger.tail == '' and ledger.logged > 0 then
    trim(key, ledger)
    if ledger.passed < ledger.logged then return false end
  end
  return (ledger.tail == '' or last_of(ledger.tail) + ledger.n <= sub_window(ledger, t))
    and (ledger.ahead == '' or last_of(ledger.ahead) < sub_window(ledger, max(0, t - grace)))
end

-- Corrects searches that may go on when a booking is added: the window at which a search stands holds the booking, or
-- has passed it, or comes to it. A booking that is taken back may leave room where none was: all searches begin anew.
local function book_in_searches(ledger, x, units, longer)
  if units < 0 then ledger.searches = {} end
  for _, search in pairs(ledger.searches) do
    for i = 1, 2 do
      local w = search[i]
      if w and x <= w.y then
        w.b_in = w.b_in + longer
        if max(x, ledger.current) + ledger.n <= w.y then w.b_out = w.b_out + longer else w.sum = w.sum + units end
      end
    end
  end
end

-- Moves the older entries of a long tail into the log, not the current one and not the last. A log that this ledger has
-- not begun is that of a lost scope key.
local function spill(key, ledger)
  trim(key, ledger)
  local current = format('%016d', sub_window(ledger, now + key.shift))
  local i = 1
  while i + 32 < #ledger.tail and sub(ledger.tail, i, i + 15) < current do i = i + 32 end
  if i == 1 then return end
  key.touched = true -- later starts come behind the log, even if the clock steps back
  local begun = ledger.logged > 0
  call(begun and 'APPEND' or 'SET', log_of(key, ledger), sub(ledger.tail, 1, i - 1))
  if not begun then key.expire = 0 end -- renewed, so that the log has an expiry too
  ledger.tail, ledger.logged = sub(ledger.tail, i), ledger.logged + i - 1
end

-- Cuts entries off the log that have left, once they are most of it.
local function cut(key, ledger)
  local log = log_of(key, ledger)
  if ledger.passed >= ledger.logged then
    call('UNLINK', log)
    ledger.passed, ledger.logged = 0, 0
  elseif ledger.passed > 4096 and 2 * ledger.passed > ledger.logged then
    call('SET', log, call('GETRANGE', log, format('%d', ledger.passed), '-1'), 'KEEPTTL')
    ledger.passed, ledger.logged = 0, ledger.logged - ledger.passed
  end
end

-- Makes a fine ledger coarser if it counts many units, which a raised limit or one that is not enforced lets start. Its
-- sub-windows are then a thousandth of the window at least. An entry goes into the one that contains its own, and
-- counts as long as before, or longer.
local function coarsen(key, ledger)
  local least = math.ceil(ledger.length / FINEST)
  if ledger.spent <= 2 * FINEST or ledger.precision >= least or not ledger.kind.logged then return end
  trim(key, ledger)
  if ledger.spent <= 2 * FINEST then return end
  for i = 1, #key.limits do
    if key.limits[i].span == ledger.span then least = max(least, key.limits[i].precision) end
  end
  local times, log = math.ceil(least / ledger.precision), read_log(key, ledger, ledger.passed, NEVER)
  if ledger.logged > 0 then call('UNLINK', log_of(key, ledger)) end
  ledger.tail, ledger.ahead = coarser(table.concat({ log, ledger.tail }), times), coarser(ledger.ahead, times)
  ledger.passed, ledger.logged = 0, 0
  with_span(ledger, ledger.span, ledger.precision * times)
end

-- When the last of some entries leaves its window, by the clock. Where Redis has lost the edges of a period that is
-- booked, it errs on the late side: by two hours for each period beyond the known ones, and as if months had 31 days.
local function leaves_at(key, ledger, text)
  if text == '' then return 0 end
  local x, edges, beyond = last_of(text) + ledger.n, ledger.edges, 0
  if edges then
    local known = min(x, edges.first + edges.count - 1)
    x, beyond = known, (x - known) * (ledger.length + 7200000000)
  end
  return start_of(ledger, x) - key.offset + beyond
end
return new_ledger, log_of, read_log, parse_ledgers, older, trim, is_empty, book_in_searches, spill, cut, coarsen,
  leaves_at
