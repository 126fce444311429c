-- Scope keys and their ledgers. A scope key is one string, "key:<name>":
--   expire seen offset pause own adapted \n  us, us, us, "until|at|by|why" or 0, own limits as they are set or '-', only where it is
--                                          served less or was refused: " less,down,changed,refusals,closed,closed_at"; expire 0: never
--   and for each ledger, in the order of kinds.lua:
--   span precision since spent booked tail ahead passed logged \n, then two texts of entries: since us, by the ledger's
--   time, from when it counts; tail bytes of the newest that is spent, ahead bytes of what is booked
-- What is older than the tail lies in "ledger:<name>:<span>", logged bytes of entries, of which the first passed have
-- left the window.
-- uses: kinds, entries, scopes
local function new_ledger(span, precision, since)
  return with_span({
    since = since, spent = 0, booked = 0, tail = '', ahead = '', passed = 0, logged = 0, trimmed = false,
    old = false, promised = false, searches = {}, current = 0, -- as far as they are read, and searched
  }, span, precision)
end

local function log_of(key, ledger) return prefix .. 'ledger:' .. key.name .. ':' .. ledger.span end

local function parse_ledgers(key, text, at)
  local count = 0
  while at <= #text do
    local span, precision, since, spent, booked, tail, rest, from =
      match(text, '^(%l%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+ %d+ %d+)\n()', at)
    local ledger = from and new_ledger(span, precision, tonumber(since))
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

-- What a lost log held counts with the oldest of the tail, or as if it had just been spent: longer than it would have, so
-- that no window gets more than its limit.
local function mend(key, ledger)
  local at, units = {}, {}
  list_of(ledger.tail, at, units)
  local lost = ledger.spent
  for i = 1, #units do lost = lost - units[i] end
  key.dirty, key.touched = true, true
  ledger.tail = add(ledger.tail, at[1] or sub_window(ledger, now + key.shift), lost)
  ledger.passed, ledger.logged = 0, 0
end

-- Subtracts what has left the window: each entry leaves once, so this costs by what has changed.
local function trim(key, ledger)
  if ledger.trimmed then return end
  ledger.trimmed = true
  local t = now + key.shift
  local edge = format('%016d', sub_window(ledger, t) - ledger.n + 1)
  while ledger.passed < ledger.logged do
    local chunk = call('GETRANGE', log_of(key, ledger), format('%d', ledger.passed), format('%d', min(ledger.passed + 1023, ledger.logged - 1)))
    local i = 1
    while i < #chunk and sub(chunk, i, i + 15) < edge do
      ledger.spent = ledger.spent - tonumber(sub(chunk, i + 16, i + 31))
      i = i + 32
    end
    if chunk == '' then mend(key, ledger) end
    if i == 1 then break end
    key.dirty, key.touched, ledger.passed = true, true, ledger.passed + i - 1
    if i < #chunk then break end
  end
  if ledger.passed >= ledger.logged then
    local i = 1
    while i < #ledger.tail and sub(ledger.tail, i, i + 15) < edge do
      ledger.spent = ledger.spent - tonumber(sub(ledger.tail, i + 16, i + 31))
      i = i + 32
    end
    if i > 1 then key.dirty, key.touched, ledger.tail = true, true, sub(ledger.tail, i) end
  end
  edge = format('%016d', sub_window(ledger, max(0, t - grace)))
  local i = 1
  while i < #ledger.ahead and sub(ledger.ahead, i, i + 15) < edge do
    ledger.booked = ledger.booked - tonumber(sub(ledger.ahead, i + 16, i + 31))
    i = i + 32
  end
  if i > 1 then key.dirty, key.touched, ledger.ahead = true, true, sub(ledger.ahead, i) end
end

-- Nothing counts any more: the last that is spent has left, the last booking's grace is over.
local function is_empty(key, ledger)
  local t = now + key.shift
  if ledger.tail == '' and ledger.logged > 0 then
    trim(key, ledger)
    if ledger.passed < ledger.logged then return false end
  end
  return (ledger.tail == '' or tonumber(sub(ledger.tail, -32, -17)) + ledger.n <= sub_window(ledger, t))
    and (ledger.ahead == '' or tonumber(sub(ledger.ahead, -32, -17)) < sub_window(ledger, max(0, t - grace)))
end

local function drop_empty(key)
  for i = #key, 1, -1 do
    if is_empty(key, key[i]) then
      if key[i].logged > 0 then key.drops = { log_of(key, key[i]), key.drops } end
      table.remove(key, i)
      key.touched = true
    end
  end
end

local function ledger_of(key, span)
  for i = 1, #key do
    if key[i].span == span then return key[i] end
  end
end

local function add_ledgers(key, limits)
  for i = 1, #limits do
    local limit = limits[i]
    if limit.units >= 0 and not ledger_of(key, limit.span) then
      local place = 1
      while key[place] and precedes(key[place], limit) do place = place + 1 end
      table.insert(key, place, new_ledger(limit.span, limit.precision, now + key.shift))
    end
  end
end

-- Keeps the ledgers of a scope key in which something counts, and adds those that its limits need, and those that limits need
-- which are in force again when these end.
local function refit(key)
  drop_empty(key)
  if #key == 0 then key.offset, key.was, key.shift, key.seen = 0, 0, 0, 0 end
  if key.mode == OFF then return end
  add_ledgers(key, key.limits)
  if key.follow then add_ledgers(key, key.follow) end
  if key.after then add_ledgers(key, key.after) end
end

-- How a scope key follows its upstream: thousandths that it is served less, when it was refused last and changed, its
-- refusals in succession, until when the upstream has closed it, and when that was reported. It is forgotten a day after the
-- last change. What was reported before the clock stepped back goes back with it, so that nothing is reported in the future.
local function follows_until(key)
  return max(key.closed, (key.less > 0 or key.refusals > 0) and key.changed + 86400000000 or 0)
end

local function read_adapted(key, text)
  local less, down, changed, refusals, closed, closed_at = match(text, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
  if not less then error('FOREIGN key:' .. key.name, 0) end
  down, changed, closed_at = tonumber(down), tonumber(changed), tonumber(closed_at)
  key.less, key.down, key.changed, key.refusals = tonumber(less), min(down, now), min(changed, now), tonumber(refusals)
  key.closed, key.closed_at = closed - max(0, closed_at - now), min(closed_at, now)
  key.dirty = max(down, changed, closed_at) > now
  if follows_until(key) <= now then key.less, key.down, key.changed, key.refusals, key.closed, key.closed_at = 0, 0, 0, 0, 0, 0 end
end

-- Limits of its own: those of its scope follow when they end.
local function read_own(key)
  local limits, ends = setting_of(key.own, 'key:' .. key.name)
  if limits == NOTHING then
    key.own, key.dirty = NOTHING, true
    return
  end
  if ends < NEVER then key.follow = key.limits else key.after = nil end
  key.limits, key.origin = limits_of(limits, 'key:' .. key.name), 'k'
  key.own_ends, key.ends = ends, min(key.ends, ends)
end

-- Reads a scope key. Time in its ledgers never goes back, also not behind the last look at which something left them: after
-- a small step of the clock it stands still, after a larger one it goes on from where it stood.
local function read_key(name, text)
  local scope = scope_of(name)
  local key = {
    name = name, text = text, expire = 0, seen = 0, offset = 0, was = 0, shift = 0, own = NOTHING, own_ends = NEVER,
    ends = scope.ends, follow = false, after = scope.after, pause = 0, note = '', closed = 0, paused = 0,
    less = 0, down = 0, changed = 0, refusals = 0, closed_at = 0,
    mode = scope.mode, limits = scope.limits, origin = scope.origin, dirty = false, touched = false, drops = false,
  }
  if text then
    local expire, seen, rest, at = match(text, '^(%d+) (%d+) ([^\n]+)\n()')
    if not at then error('FOREIGN key:' .. name, 0) end
    key.expire, key.seen = tonumber(expire), tonumber(seen)
    if rest ~= '0 0 -' then
      local offset, pause, note, own, adapted = match(rest, '^(%-?%d+) (%d+)(%S*) (%S+) ?(%S*)$')
      if not own then error('FOREIGN key:' .. name, 0) end
      key.offset, key.was, key.pause, key.note, key.own = tonumber(offset), tonumber(offset), tonumber(pause), note, own
      if adapted ~= '' then read_adapted(key, adapted) end
      key.paused = max(key.pause, key.closed)
      if own ~= NOTHING then read_own(key) end
    end
    if key.seen - now - key.offset > 30000000 then -- kept, so that it goes on also while nobody is charged
      key.offset, key.dirty, key.touched = key.seen - now, true, true
    end
    key.shift = max(now + key.offset, key.seen) - now
    parse_ledgers(key, text, at)
  elseif call('EXISTS', prefix .. 'key:' .. name) == 1 then
    error('FOREIGN key:' .. name, 0) -- of another type
  end
  refit(key)
  budget.left = budget.left - 30
  return key
end

-- The ledgers' time at an instant. While it stands still, it does so for all instants until the clock has caught up: what
-- is granted for one of them starts no sooner than the ledger has it.
local function time_of(key, at)
  if key.shift ~= key.offset then return max(at + key.offset, key.seen) end
  return at + key.offset
end

-- Has searches go on from where they stand when a booking is added or taken back: the window that ends there holds it, or it
-- has left that, or it comes later. What is taken back may leave room where there was none.
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

-- Counts a start. A ledger never has more than can be told exactly: what is beyond that is not counted.
local function spend_in(key, ledger, at, units)
  units = min(units, NEVER - ledger.spent)
  key.dirty, key.touched = true, true
  local x, before, old = sub_window(ledger, time_of(key, at)), #ledger.tail, ledger.old
  ledger.tail, ledger.searches = add(ledger.tail, x, units), {}
  ledger.spent = ledger.spent + units
  if old and old.of_tail > 0 and x <= old.at[#old.at] then -- among those that have been read
    put(old, x, units)
    old.of_tail = old.of_tail + #ledger.tail - before
  end
end

-- Charges a start.
local function spend(key, at, units)
  key.dirty, key.touched = true, true
  for i = 1, #key do spend_in(key, key[i], at, units) end
end

-- Books a start; negative units take it back.
local function book(key, at, units)
  key.dirty, key.touched = true, true
  for i = 1, #key do
    local ledger, changed = key[i], nil
    local x = sub_window(ledger, time_of(key, at))
    ledger.ahead, changed = add(ledger.ahead, x, min(units, NEVER - ledger.booked))
    ledger.booked = ledger.booked + changed
    if ledger.promised and changed ~= 0 then book_in_searches(ledger, x, changed, put(ledger.promised, x, changed)) end
  end
end

-- The oldest of a long tail go into the log, all but the last: what starts from now on is behind them. A log that this
-- ledger has not begun is another's, whose scope key was lost.
local function spill(key, ledger)
  trim(key, ledger)
  local current = format('%016d', sub_window(ledger, now + key.shift))
  local i = 1
  while i + 32 < #ledger.tail and sub(ledger.tail, i, i + 15) < current do i = i + 32 end
  if i == 1 then return end
  key.touched = true -- what starts from now on is behind the log, also where the clock steps back
  local begun = ledger.logged > 0
  call(begun and 'APPEND' or 'SET', log_of(key, ledger), sub(ledger.tail, 1, i - 1))
  if not begun then key.expire = 0 end -- renewed, so that the log has an expiry too
  ledger.tail, ledger.logged = sub(ledger.tail, i), ledger.logged + i - 1
end

-- What has left is cut off the log when it is most of it.
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

-- Makes a ledger coarser that was exact, or nearly so, and has come to count many units, since a limit was raised or is not
-- enforced. Its entries go into sub-windows of a thousandth of the window at least, each into one that contains its own:
-- it counts for as long as before, or longer.
local function coarsen(key, ledger)
  local least = math.ceil(ledger.length / FINEST)
  if ledger.spent <= 2 * FINEST or ledger.precision >= least or not ledger.kind.logged then return end
  trim(key, ledger)
  if ledger.spent <= 2 * FINEST then return end
  for i = 1, #key.limits do
    if key.limits[i].span == ledger.span then least = max(least, key.limits[i].precision) end
  end
  local times, log = math.ceil(least / ledger.precision), log_of(key, ledger)
  local old = ledger.logged > 0 and call('GETRANGE', log, format('%d', ledger.passed), format('%d', ledger.logged - 1)) or ''
  if ledger.logged > 0 then call('UNLINK', log) end
  ledger.tail, ledger.ahead = coarser(table.concat({ old, ledger.tail }), times), coarser(ledger.ahead, times)
  ledger.passed, ledger.logged = 0, 0
  with_span(ledger, ledger.span, ledger.precision * times)
end

-- When the last of some entries has left its window, by the clock.
local function ended(key, ledger, text)
  return text == '' and 0 or start_of(ledger, tonumber(sub(text, -32, -17)) + ledger.n) - key.offset
end

-- Writes a scope key. It is kept for as long as what it has counts; its expiry, and that of its logs, is renewed seldom.
local function save_key(key)
  local name = prefix .. 'key:' .. key.name
  drop_empty(key)
  while key.drops do
    call('UNLINK', key.drops[1])
    key.drops = key.drops[2]
  end
  local needed, text, adapted = max(now, key.pause, follows_until(key)), '', ''
  if key.own_ends < NEVER then needed = max(needed, key.own_ends) end
  if #key == 0 and key.own == NOTHING and needed == now then
    if key.text then call('UNLINK', name) end
    return
  end
  for i = 1, #key do
    local ledger = key[i]
    coarsen(key, ledger)
    if #ledger.tail > SPILL and ledger.kind.logged then spill(key, ledger) end
    if ledger.passed > 0 then cut(key, ledger) end
    needed = max(needed, now + start_of(ledger, ledger.n), ended(key, ledger, ledger.tail), ended(key, ledger, ledger.ahead))
    text = text .. format('%s %d %d %d %d %d %d %d %d\n', ledger.span, ledger.precision, ledger.since, ledger.spent,
      ledger.booked, #ledger.tail, #ledger.ahead, ledger.passed, ledger.logged) .. ledger.tail .. ledger.ahead
  end
  needed = needed + lookahead + grace + 60000000
  local renew = key.expire < needed
  if renew then key.expire = needed + floor((needed - now) / 4) end
  if key.touched then key.seen, key.was = now + key.shift, key.offset end
  if follows_until(key) > now then
    adapted = format(' %d,%d,%d,%d,%d,%d', key.less, key.down, key.changed, key.refusals, key.closed, key.closed_at)
  end
  local own, pause_text = key.own, key.pause > now and format('%d', key.pause) .. key.note or '0'
  text = format('%d %d %d ', key.expire, key.seen, key.was) .. pause_text .. ' ' .. own .. adapted .. '\n' .. text
  if own ~= NOTHING and key.own_ends == NEVER then
    call('SET', name, text)
  elseif not renew then
    call('SET', name, text, 'KEEPTTL')
  else
    call('SET', name, text, 'PX', format('%d', floor((key.expire - now) / 1000)))
  end
  for i = 1, renew and #key or 0 do
    if key[i].logged > 0 then call('PEXPIRE', log_of(key, key[i]), format('%d', floor((key.expire - now) / 1000))) end
  end
end

-- The scope keys of a call. What is read at once is read before.
local keys, texts = {}, {}
local function key_of(name)
  local key = keys[name]
  if not key then
    local text = texts[name]
    if text == nil then text = call('GET', prefix .. 'key:' .. name) end
    key = read_key(name, text or nil)
    keys[name] = key
  end
  return key
end

local function save_keys()
  for _, key in pairs(keys) do
    if key.dirty then save_key(key) end
  end
end
return log_of, trim, ledger_of, refit, time_of, spend_in, spend, book, keys, texts, key_of, save_keys
