-- Scope keys and their ledgers. A scope key is one string, "key:<name>":
--   expire seen offset paused own \n        us, us, us, us; own limits as text, '-' for none. expire 0: never
--   and for each window, ascending: window precision spent booked passed length tail ahead \n, then two texts of entries:
--   tail bytes of the newest that is spent, ahead bytes of what is booked
-- What is older than the tail lies in "ledger:<name>:<window>", length bytes of entries, of which the first passed have
-- left the window.
local SPILL = 512

local function parse_windows(key, text, at)
  while at <= #text do
    local window, precision, spent, booked, passed, length, tail, ahead, from =
      match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\n()', at)
    if not from then error({ err = 'FOREIGN key:' .. key.name }) end
    window, precision, tail, ahead = tonumber(window), tonumber(precision), tonumber(tail), tonumber(ahead)
    key[#key + 1] = {
      window = window, precision = precision, n = precision == 1 and window or math.ceil(window / precision) + 1,
      spent = tonumber(spent), booked = tonumber(booked), passed = tonumber(passed), length = tonumber(length),
      tail = sub(text, from, from + tail - 1), ahead = sub(text, from + tail, from + tail + ahead - 1),
      log = 'ledger:' .. key.name .. ':' .. window,
    }
    at = from + tail + ahead
  end
end

-- Subtracts what has left the window: each entry leaves once, so this costs by what has changed.
local function trim(key, ledger)
  if ledger.trimmed then return end
  ledger.trimmed = true
  local t = now + key.shift
  local edge = format('%016d', floor(t / ledger.precision) - ledger.n + 1)
  while ledger.passed < ledger.length do
    local chunk = call('GETRANGE', prefix .. ledger.log, format('%d', ledger.passed), format('%d', min(ledger.passed + 1023, ledger.length - 1)))
    local i = 1
    while i < #chunk and sub(chunk, i, i + 15) < edge do
      ledger.spent = ledger.spent - tonumber(sub(chunk, i + 16, i + 31))
      i = i + 32
    end
    if i == 1 then break end
    key.dirty, ledger.passed = true, ledger.passed + i - 1
    if i < #chunk then break end
  end
  if ledger.passed >= ledger.length then
    local i = 1
    while i < #ledger.tail and sub(ledger.tail, i, i + 15) < edge do
      ledger.spent = ledger.spent - tonumber(sub(ledger.tail, i + 16, i + 31))
      i = i + 32
    end
    if i > 1 then key.dirty, ledger.tail = true, sub(ledger.tail, i) end
  end
  edge = format('%016d', floor(max(0, t - grace) / ledger.precision))
  local i = 1
  while i < #ledger.ahead and sub(ledger.ahead, i, i + 15) < edge do
    ledger.booked = ledger.booked - tonumber(sub(ledger.ahead, i + 16, i + 31))
    i = i + 32
  end
  if i > 1 then key.dirty, ledger.ahead = true, sub(ledger.ahead, i) end
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
      if key[i].length > 0 then key.drops = { key[i].log, key.drops } end
      table.remove(key, i)
    end
  end
end

-- Reads a scope key. Time in its ledgers never goes back: after a small step of the clock it stands still, after a
-- larger one it goes on from where it stood.
local function read_key(name, text)
  local key = { name = name, paused = 0, own = '-', seen = 0, offset = 0, was = 0, shift = 0, expire = 0, text = text }
  if text then
    local expire, seen, offset, paused, own, at = match(text, '^(%d+) (%d+) (%-?%d+) (%d+) (%S+)\n()')
    if not at then error({ err = 'FOREIGN key:' .. name }) end
    key.expire, key.seen, key.offset, key.paused, key.own = tonumber(expire), tonumber(seen), tonumber(offset), tonumber(paused), own
    key.was = key.offset
    if key.seen - now - key.offset > 30000000 then key.offset = key.seen - now end
    key.shift = max(now + key.offset, key.seen) - now
    parse_windows(key, text, at)
    drop_empty(key)
    if #key == 0 then key.offset, key.was, key.shift, key.seen = 0, 0, 0, 0 end
  elseif call('EXISTS', prefix .. 'key:' .. name) == 1 then
    error({ err = 'FOREIGN key:' .. name }) -- of another type
  end
  local scope = scope_of(name)
  key.mode, key.limits, key.origin = scope.mode, scope.limits, scope.origin
  if key.own ~= '-' then key.limits, key.origin = limits_of(key.own), 'k' end
  return key
end

local function ledger_of(key, window)
  for i = 1, #key do
    if key[i].window == window then return key[i] end
  end
end

-- Makes the ledgers that the limits in force need.
local function complete(key)
  if key.complete or key.mode == 'o' then return key end
  key.complete = true
  for i = 1, #key.limits do
    local limit = key.limits[i]
    if limit.units >= 0 and not ledger_of(key, limit.window) then
      local place = 1
      while key[place] and key[place].window < limit.window do place = place + 1 end
      table.insert(key, place, {
        window = limit.window, precision = limit.precision,
        n = limit.precision == 1 and limit.window or math.ceil(limit.window / limit.precision) + 1,
        spent = 0, booked = 0, passed = 0, length = 0, tail = '', ahead = '', log = 'ledger:' .. key.name .. ':' .. format('%d', limit.window),
      })
    end
  end
  return key
end

-- The i-th of what is spent, oldest first: sub-window and units; reads a chunk of the log at a time.
local function spent_at(ledger, i)
  local old = ledger.old
  if not old then
    old = { at = {}, units = {}, read = ledger.passed }
    ledger.old = old
  end
  while i > #old.at and not old.whole do
    if old.read < ledger.length then
      local to = min(old.read + 511, ledger.length - 1)
      list_of(call('GETRANGE', prefix .. ledger.log, format('%d', old.read), format('%d', to)), old.at, old.units)
      old.read = to + 1
    else
      list_of(ledger.tail, old.at, old.units)
      old.whole = true
    end
  end
  return old.at[i], old.units[i]
end

-- What is spent or booked behind a sub-window, in order of both, and how many units that is.
local function behind(text, x, ats, units)
  local digits, sum = format('%016d', x), 0
  local i = #text - 31
  while i > 0 and sub(text, i, i + 15) > digits do i = i - 32 end
  for j = i + 32, #text, 32 do
    ats[#ats + 1], units[#units + 1] = tonumber(sub(text, j, j + 15)), tonumber(sub(text, j + 16, j + 31))
    sum = sum + units[#units]
  end
  return sum
end

-- The first sub-window from x on where the cost fits into every window that contains it. Two pointers go along what
-- enters the window that ends at y and what leaves it; sum is what it holds. It begins with all that there is, so that
-- only what leaves until there is room is read.
local function slide(ledger, x, room, promises)
  local n, y = ledger.n, x
  local s_at, s_units, b_at, b_units = {}, {}, {}, {}
  local sum = ledger.spent - behind(ledger.tail, x, s_at, s_units)
  local ahead, ahead_at, ahead_units = '', {}, {}
  if promises then
    ahead = ledger.ahead
    sum = sum + ledger.booked - behind(ahead, x, b_at, b_units)
    list_of(ahead, ahead_at, ahead_units)
  end
  local s_in, b_in, s_out, b_out = 1, 1, 1, 1
  while true do
    while s_at[s_in] and s_at[s_in] <= y do
      sum, s_in = sum + s_units[s_in], s_in + 1
    end
    while b_at[b_in] and b_at[b_in] <= y do
      sum, b_in = sum + b_units[b_in], b_in + 1
    end
    local oldest, units = spent_at(ledger, s_out)
    while oldest and oldest + n <= y do
      sum, s_out = sum - units, s_out + 1
      oldest, units = spent_at(ledger, s_out)
    end
    local promised = ahead_at[b_out]
    while promised and max(promised, ledger.current) + n <= y do
      sum, b_out = sum - ahead_units[b_out], b_out + 1
      promised = ahead_at[b_out]
    end
    if sum > room then
      -- Until enough has left.
      y = min(oldest or NEVER, promised and max(promised, ledger.current) or NEVER) + n
      x = y
    else
      -- The next window that ends later and still contains x.
      local entering = min(s_at[s_in] or NEVER, b_at[b_in] or NEVER)
      if entering >= x + n then return x end
      y = entering
    end
  end
end

-- The first start at or after at that one ledger allows.
local function earliest_in(key, ledger, at, cost, units, promises)
  local room = units - cost
  if room < 0 then return NEVER end
  local booked = promises and ledger.booked or 0
  if ledger.spent + booked <= room then return at end
  trim(key, ledger)
  booked = promises and ledger.booked or 0
  if ledger.spent + booked <= room then return at end
  local x = floor((at + key.shift) / ledger.precision)
  ledger.current = floor((now + key.shift) / ledger.precision)
  local y = slide(ledger, x, room, promises)
  if x == y then return at end
  return y * ledger.precision - key.shift
end

-- The first start at or after at that a scope key allows by itself, and what moved it last: a limit, or 'p' the pause.
local function earliest_of(key, at, cost, promises)
  local holder
  if key.paused > at then at, holder = key.paused, 'p' end
  local again = true
  while again do
    again = false
    for i = 1, #key.limits do
      local limit = key.limits[i]
      if limit.units >= 0 then
        local start = earliest_in(key, ledger_of(key, limit.window), at, cost, limit.units, promises)
        if start == NEVER then return NEVER, limit end
        if start > at then at, holder, again = start, limit, true end
      end
    end
  end
  return at, holder
end

-- The same for all scope keys of a lane whose mode is this one; also the scope key that moved it last.
local function earliest(lane, costs, at, promises, mode)
  local key, holder
  local again = true
  while again do
    again = false
    for i = 1, #lane do
      if lane[i].mode == mode then
        local start, by = earliest_of(lane[i], at, costs[i], promises)
        if start > at then
          at, key, holder, again = start, lane[i], by, true
          if at == NEVER then return at, key, holder end
        end
      end
    end
  end
  return at, key, holder
end

-- Adds to what has been read of what is spent, as far as it is there.
local function put(old, at, units)
  if not old or not old.whole then return end
  local i = #old.at
  while i > 0 and old.at[i] > at do i = i - 1 end
  if old.at[i] == at then
    old.units[i] = old.units[i] + units
  else
    table.insert(old.at, i + 1, at)
    table.insert(old.units, i + 1, units)
  end
end

-- Charges a start.
local function spend(key, at, units)
  key.dirty, key.touched = true, true
  for i = 1, #key do
    local ledger = key[i]
    local x = floor((at + key.shift) / ledger.precision)
    ledger.tail = add(ledger.tail, x, units)
    ledger.spent = ledger.spent + units
    put(ledger.old, x, units)
  end
end

-- Books a start; negative units take it back.
local function book(key, at, units)
  key.dirty, key.touched = true, true
  for i = 1, #key do
    local ledger, changed = key[i], nil
    ledger.ahead, changed = add(ledger.ahead, floor((at + key.shift) / ledger.precision), units)
    ledger.booked = ledger.booked + changed
  end
end

-- The oldest of a long tail go into the log, whose last one stays where it is: what starts from now on is behind.
local function spill(key, ledger)
  local current = format('%016d', floor((now + key.shift) / ledger.precision))
  local i = 1
  while i + 32 < #ledger.tail and sub(ledger.tail, i, i + 15) < current do i = i + 32 end
  if i == 1 then return false end
  call('APPEND', prefix .. ledger.log, sub(ledger.tail, 1, i - 1))
  ledger.tail, ledger.length = sub(ledger.tail, i), ledger.length + i - 1
  return true
end

-- What has left is cut off the log when it is most of it.
local function cut(ledger)
  if ledger.passed >= ledger.length then
    if ledger.length > 0 then call('UNLINK', prefix .. ledger.log) end
    ledger.passed, ledger.length = 0, 0
  elseif ledger.passed > 4096 and 2 * ledger.passed > ledger.length then
    local rest = call('GETRANGE', prefix .. ledger.log, format('%d', ledger.passed), '-1')
    call('SET', prefix .. ledger.log, rest, 'KEEPTTL')
    ledger.passed, ledger.length = 0, ledger.length - ledger.passed
  end
end

-- Until when a scope key has to be kept: what it has counts for so long.
local function needed(key)
  local t = max(now, key.paused)
  for i = 1, #key do
    local ledger = key[i]
    local last = ledger.ahead ~= '' and tonumber(sub(ledger.ahead, -32, -17)) * ledger.precision - key.shift or 0
    t = max(t, now + ledger.n * ledger.precision, last + ledger.n * ledger.precision)
  end
  return t + horizon - now + grace + 60000000
end

-- Writes a scope key. Its expiry, and that of its logs, is renewed when it is due.
local function save_key(key)
  local name = prefix .. 'key:' .. key.name
  drop_empty(key)
  while key.drops do
    call('UNLINK', prefix .. key.drops[1])
    key.drops = key.drops[2]
  end
  if #key == 0 and key.own == '-' and key.paused <= now then
    if key.text then call('UNLINK', name) end
    return
  end
  local until_then, renew = needed(key), false
  if key.expire < until_then or key.own ~= '-' then
    key.expire, renew = until_then + floor((until_then - now) / 4), true
  end
  local parts = {}
  for i = 1, #key do
    local ledger = key[i]
    local first = ledger.length == 0
    if #ledger.tail > SPILL and spill(key, ledger) and first then renew = true end
    if ledger.passed > 0 then cut(ledger) end
    if renew and ledger.length > 0 then call('PEXPIRE', prefix .. ledger.log, format('%d', floor((key.expire - now) / 1000))) end
    parts[#parts + 1] = format('%d %d %d %d %d %d %d %d\n', ledger.window, ledger.precision, ledger.spent, ledger.booked,
      ledger.passed, ledger.length, #ledger.tail, #ledger.ahead) .. ledger.tail .. ledger.ahead
  end
  local text = format('%d %d %d %d %s\n', key.expire, key.touched and now + key.shift or key.seen,
    key.touched and key.offset or key.was, key.paused, key.own) .. table.concat(parts)
  if key.own ~= '-' then
    call('SET', name, text)
  elseif renew or not key.text then
    call('SET', name, text, 'PX', format('%d', floor((key.expire - now) / 1000)))
  else
    call('SET', name, text, 'KEEPTTL')
  end
end
