-- Scope keys and their ledgers. A scope key is one string, "key:<name>":
--   expire seen offset paused own adapted \n  us, us, us, us, own limits as text or '-', only where it is served less or was refused:
--                                           " less,down,changed,refusals"; expire 0: never
--   and for each window, ascending, leases negative and without a log:
--   window precision spent booked tail ahead passed length \n, then two texts of entries:
--   tail bytes of the newest that is spent, ahead bytes of what is booked
-- What is older than the tail lies in "ledger:<name>:<window>", length bytes of entries, of which the first passed have
-- left the window.
local function new_ledger(window, precision)
  return {
    window = window, precision = precision, n = reach(window, precision),
    spent = 0, booked = 0, tail = '', ahead = '', passed = 0, length = 0, trimmed = false,
    old = false, promised = false, full = {}, search = false, current = 0, -- as far as they are read, and searched
  }
end

local function log_of(key, ledger) return prefix .. 'ledger:' .. key.name .. ':' .. format('%d', ledger.window) end

local function parse_windows(key, text, at)
  local count = 0
  while at <= #text do
    local window, precision, spent, booked, tail, rest, from = match(text, '^(-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+ %d+ %d+)\n()', at)
    if not from then error('FOREIGN key:' .. key.name, 0) end
    local ledger = new_ledger(tonumber(window), tonumber(precision))
    ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
    at = from + tail
    ledger.tail = sub(text, from, at - 1)
    if rest ~= '0 0 0' then
      local ahead, passed, length = match(rest, '^(%d+) (%d+) (%d+)$')
      ledger.ahead = sub(text, at, at + ahead - 1)
      ledger.passed, ledger.length, at = tonumber(passed), tonumber(length), at + ahead
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
  ledger.tail = add(ledger.tail, at[1] or floor((now + key.shift) / ledger.precision), lost)
  ledger.passed, ledger.length = 0, 0
end

-- Subtracts what has left the window: each entry leaves once, so this costs by what has changed.
local function trim(key, ledger)
  if ledger.trimmed then return end
  ledger.trimmed = true
  local t = now + key.shift
  local edge = format('%016d', floor(t / ledger.precision) - ledger.n + 1)
  while ledger.passed < ledger.length do
    local chunk = call('GETRANGE', log_of(key, ledger), format('%d', ledger.passed), format('%d', min(ledger.passed + 1023, ledger.length - 1)))
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
  if ledger.passed >= ledger.length then
    local i = 1
    while i < #ledger.tail and sub(ledger.tail, i, i + 15) < edge do
      ledger.spent = ledger.spent - tonumber(sub(ledger.tail, i + 16, i + 31))
      i = i + 32
    end
    if i > 1 then key.dirty, key.touched, ledger.tail = true, true, sub(ledger.tail, i) end
  end
  edge = format('%016d', floor(max(0, t - grace) / ledger.precision))
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
  if ledger.tail == '' and ledger.length > 0 then
    trim(key, ledger)
    if ledger.passed < ledger.length then return false end
  end
  return (ledger.tail == '' or tonumber(sub(ledger.tail, -32, -17)) + ledger.n <= floor(t / ledger.precision))
    and (ledger.ahead == '' or tonumber(sub(ledger.ahead, -32, -17)) < floor(max(0, t - grace) / ledger.precision))
end

local function drop_empty(key)
  for i = #key, 1, -1 do
    if is_empty(key, key[i]) then
      if key[i].length > 0 then key.drops = { log_of(key, key[i]), key.drops } end
      table.remove(key, i)
      key.touched = true
    end
  end
end

local function ledger_of(key, window)
  for i = 1, #key do
    if key[i].window == window then return key[i] end
  end
end

-- Has the ledgers of a scope key be those in which something counts and those that its limits need.
local function refit(key)
  drop_empty(key)
  if #key == 0 then key.offset, key.was, key.shift, key.seen = 0, 0, 0, 0 end
  for i = 1, key.mode ~= 'o' and #key.limits or 0 do
    local limit = key.limits[i]
    if limit.units >= 0 and not ledger_of(key, limit.window) then
      local place = 1
      while key[place] and key[place].window < limit.window do place = place + 1 end
      table.insert(key, place, new_ledger(limit.window, limit.precision))
    end
  end
end

-- How a scope key follows its upstream: thousandths that it is served less, when it was refused last and changed, in us, and
-- its refusals in succession. It is forgotten a day after the last change.
local ADAPTED_FOR = 86400000000
local function read_adapted(key, text)
  local less, down, changed, refusals = match(text, '^(%d+),(%d+),(%d+),(%d+)$')
  if not less then error('FOREIGN key:' .. key.name, 0) end
  if tonumber(changed) + ADAPTED_FOR > now then
    key.less, key.down, key.changed, key.refusals = tonumber(less), tonumber(down), tonumber(changed), tonumber(refusals)
  end
end

-- Reads a scope key. Time in its ledgers never goes back, also not behind the last look at which something left them: after
-- a small step of the clock it stands still, after a larger one it goes on from where it stood.
local function read_key(name, text)
  local scope = scope_of(name)
  local key = {
    name = name, text = text, expire = 0, seen = 0, offset = 0, was = 0, shift = 0, paused = 0, own = '-',
    less = 0, down = 0, changed = 0, refusals = 0,
    mode = scope.mode, limits = scope.limits, origin = scope.origin, dirty = false, touched = false, drops = false,
  }
  if text then
    local expire, seen, rest, at = match(text, '^(%d+) (%d+) ([^\n]+)\n()')
    if not at then error('FOREIGN key:' .. name, 0) end
    key.expire, key.seen = tonumber(expire), tonumber(seen)
    if rest ~= '0 0 -' then
      local offset, paused, own, adapted = match(rest, '^(%-?%d+) (%d+) (%S+) ?(%S*)$')
      if not own then error('FOREIGN key:' .. name, 0) end
      key.offset, key.was, key.paused, key.own = tonumber(offset), tonumber(offset), tonumber(paused), own
      if adapted ~= '' then read_adapted(key, adapted) end
      if own ~= '-' then key.limits, key.origin = limits_of(own, 'key:' .. name), 'k' end
    end
    if key.seen - now - key.offset > 30000000 then -- kept, so that it goes on also while nobody is charged
      key.offset, key.dirty, key.touched = key.seen - now, true, true
    end
    key.shift = max(now + key.offset, key.seen) - now
    parse_windows(key, text, at)
  elseif call('EXISTS', prefix .. 'key:' .. name) == 1 then
    error('FOREIGN key:' .. name, 0) -- of another type
  end
  refit(key)
  return key
end

-- The ledgers' time at an instant. While it stands still, it does so for all instants until the clock has caught up: what
-- is granted for one of them starts no sooner than the ledger has it.
local function time_of(key, at)
  if key.shift ~= key.offset then return max(at + key.offset, key.seen) end
  return at + key.offset
end

-- Adds to entries that have been read as lists.
local function put(list, at, units)
  local i = #list.at
  while i > 0 and list.at[i] > at do i = i - 1 end
  if list.at[i] ~= at then
    table.insert(list.at, i + 1, at)
    table.insert(list.units, i + 1, units)
  elseif list.units[i] + units > 0 then
    list.units[i] = list.units[i] + units
  else
    table.remove(list.at, i)
    table.remove(list.units, i)
  end
end

-- Counts a start. A ledger never has more than can be told exactly: what is beyond that is not counted.
local function spend_in(key, ledger, at, units)
  units = min(units, NEVER - ledger.spent)
  key.dirty, key.touched = true, true
  local x, before, old = floor(time_of(key, at) / ledger.precision), #ledger.tail, ledger.old
  ledger.tail, ledger.search = add(ledger.tail, x, units), false
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
    local x = floor(time_of(key, at) / ledger.precision)
    ledger.ahead, changed = add(ledger.ahead, x, min(units, NEVER - ledger.booked))
    ledger.booked = ledger.booked + changed
    if ledger.promised and changed ~= 0 then put(ledger.promised, x, changed) end
    ledger.search = false
    if changed < 0 then ledger.full = {} end
  end
end

-- The oldest of a long tail go into the log, all but the last: what starts from now on is behind them. A log that this
-- ledger has not begun is another's, whose scope key was lost.
local function spill(key, ledger)
  trim(key, ledger)
  local current = format('%016d', floor((now + key.shift) / ledger.precision))
  local i = 1
  while i + 32 < #ledger.tail and sub(ledger.tail, i, i + 15) < current do i = i + 32 end
  if i == 1 then return end
  key.touched = true -- what starts from now on is behind the log, also where the clock steps back
  local begun = ledger.length > 0
  call(begun and 'APPEND' or 'SET', log_of(key, ledger), sub(ledger.tail, 1, i - 1))
  if not begun then key.expire = 0 end -- renewed, so that the log has an expiry too
  ledger.tail, ledger.length = sub(ledger.tail, i), ledger.length + i - 1
end

-- What has left is cut off the log when it is most of it.
local function cut(key, ledger)
  local log = log_of(key, ledger)
  if ledger.passed >= ledger.length then
    call('UNLINK', log)
    ledger.passed, ledger.length = 0, 0
  elseif ledger.passed > 4096 and 2 * ledger.passed > ledger.length then
    call('SET', log, call('GETRANGE', log, format('%d', ledger.passed), '-1'), 'KEEPTTL')
    ledger.passed, ledger.length = 0, ledger.length - ledger.passed
  end
end

-- When the last of some entries has left its window, by the clock.
local function ended(key, ledger, text)
  return text == '' and 0 or (tonumber(sub(text, -32, -17)) + ledger.n) * ledger.precision - key.offset
end

-- Writes a scope key. It is kept for as long as what it has counts; its expiry, and that of its logs, is renewed seldom.
local function save_key(key)
  local name = prefix .. 'key:' .. key.name
  drop_empty(key)
  while key.drops do
    call('UNLINK', key.drops[1])
    key.drops = key.drops[2]
  end
  local adapted = key.changed > 0
  if #key == 0 and key.own == '-' and key.paused <= now and not adapted then
    if key.text then call('UNLINK', name) end
    return
  end
  local needed, text = max(now, key.paused, adapted and key.changed + ADAPTED_FOR or 0), ''
  for i = 1, #key do
    local ledger = key[i]
    if #ledger.tail > SPILL and ledger.window > 0 then spill(key, ledger) end
    if ledger.passed > 0 then cut(key, ledger) end
    local span = ledger.n * ledger.precision
    needed = max(needed, now + span, ended(key, ledger, ledger.tail), ended(key, ledger, ledger.ahead))
    text = text .. format('%d %d %d %d %d %d %d %d\n', ledger.window, ledger.precision, ledger.spent, ledger.booked,
      #ledger.tail, #ledger.ahead, ledger.passed, ledger.length) .. ledger.tail .. ledger.ahead
  end
  needed = needed + lookahead + grace + 60000000
  local renew = key.expire < needed
  if renew then key.expire = needed + floor((needed - now) / 4) end
  if key.touched then key.seen, key.was = now + key.shift, key.offset end
  adapted = adapted and format(' %d,%d,%d,%d', key.less, key.down, key.changed, key.refusals) or ''
  text = format('%d %d %d %d %s%s\n', key.expire, key.seen, key.was, key.paused > now and key.paused or 0, key.own, adapted) .. text
  if key.own ~= '-' then
    call('SET', name, text)
  elseif not renew then
    call('SET', name, text, 'KEEPTTL')
  else
    call('SET', name, text, 'PX', format('%d', floor((key.expire - now) / 1000)))
  end
  for i = 1, renew and #key or 0 do
    if key[i].length > 0 then call('PEXPIRE', log_of(key, key[i]), format('%d', floor((key.expire - now) / 1000))) end
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
