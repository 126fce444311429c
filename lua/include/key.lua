-- Scope keys. A scope key is one string, "key:<name>", as docs/redis-state.md describes it:
--   expire seen offset pause own [less,down,changed,refusals,closed,closed_at] \n, then its ledgers
-- uses: kinds, entries, scopes, ledger
local STEPPED_BACK = 30000000 -- us; after a step back of the clock by more than this a ledger's time goes on

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
      table.insert(key, place, new_ledger(key, limit.span, limit.precision, now + key.shift))
    end
  end
end

-- Drops empty ledgers, and adds one for each limit that has none, also for limits that come into force when others end.
local function refit(key)
  key.known = {}
  drop_empty(key)
  if #key == 0 then key.offset, key.was, key.shift, key.seen = 0, 0, 0, 0 end
  if key.mode == OFF then return end
  add_ledgers(key, key.limits)
  if key.follow then add_ledgers(key, key.follow) end
  if key.after then add_ledgers(key, key.after) end
end

-- Until when a scope key follows reports of its upstream: a day after the last change, or until the upstream opens it.
local function follows_until(key)
  return max(key.closed, (key.less > 0 or key.refusals > 0) and key.changed + 86400000000 or 0)
end

-- Reads the served share: less, how many thousandths it lacks; down, when the upstream refused last; changed; refusals
-- in a row; until when the upstream has closed it, and when that was reported. What was reported before the clock
-- stepped back goes back with the clock.
local function read_adapted(key, text)
  local less, down, changed, refusals, closed, closed_at = match(text, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
  if not less then error('FOREIGN key:' .. key.name, 0) end
  down, changed, closed_at = tonumber(down), tonumber(changed), tonumber(closed_at)
  key.less, key.down, key.changed, key.refusals = tonumber(less), min(down, now), min(changed, now), tonumber(refusals)
  key.closed, key.closed_at = closed - max(0, closed_at - now), min(closed_at, now)
  key.dirty = max(down, changed, closed_at) > now
  if follows_until(key) <= now then
    key.less, key.down, key.changed, key.refusals, key.closed, key.closed_at = 0, 0, 0, 0, 0, 0
  end
end

-- Reads limits of the scope key's own. If they end, its scope's limits follow.
local function read_own(key)
  local limits, ends = setting_of(key.own, 'key:' .. key.name)
  if limits == NOTHING then
    key.own, key.dirty = NOTHING, true
    return
  end
  if ends < NEVER then key.follow = key.limits else key.after = nil end
  key.limits, key.origin = limits_of(limits, 'key:' .. key.name), SET_FOR_KEY
  key.own_ends, key.ends = ends, min(key.ends, ends)
end

-- Reads a scope key. The time of its ledgers never goes back behind the last call that changed them, even if entries
-- only left: after a small step back of the clock it stands still, after a larger one it goes on from where it stood.
local function read_key(name, text)
  local scope = scope_of(name)
  local key = {
    name = name, text = text, expire = 0, seen = 0, offset = 0, was = 0, shift = 0, own = NOTHING, own_ends = NEVER,
    ends = scope.ends, follow = false, after = scope.after, pause = 0, note = '', closed = 0, paused = 0,
    less = 0, down = 0, changed = 0, refusals = 0, closed_at = 0,
    mode = scope.mode, limits = scope.limits, origin = scope.origin, dirty = false, touched = false, drops = false,
    known = {}, -- what was found in the ledgers as they are
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
    if key.seen - now - key.offset > STEPPED_BACK then -- kept, so that the time goes on while no job is charged
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

-- The ledgers' time at an instant. While the time stands still, it does so for all instants until the clock has caught
-- up: a job that is granted for one of them starts no sooner than its entry.
local function time_of(key, at)
  if key.shift ~= key.offset then return max(at + key.offset, key.seen) end
  return at + key.offset
end

-- Counts a start in one ledger, never more units than Lua counts exactly.
local function spend_in(key, ledger, at, units)
  units = min(units, NEVER - ledger.spent)
  key.dirty, key.touched, key.known = true, true, {}
  local x, before, old = sub_window(ledger, time_of(key, at)), #ledger.tail, ledger.old
  ledger.tail, ledger.searches = add(ledger.tail, x, units), {}
  ledger.spent = ledger.spent + units
  if old and old.of_tail > 0 and x <= old.at[#old.at] then -- among the entries that have been read
    put(old, x, units)
    old.of_tail = old.of_tail + #ledger.tail - before
  end
end

-- Counts a start in all ledgers.
local function spend(key, at, units)
  key.dirty, key.touched = true, true
  for i = 1, #key do spend_in(key, key[i], at, units) end
end

-- Books a start; negative units take a booking back.
local function book(key, at, units)
  key.dirty, key.touched, key.known = true, true, {}
  for i = 1, #key do
    local ledger, changed = key[i], nil
    local x = sub_window(ledger, time_of(key, at))
    ledger.ahead, changed = add(ledger.ahead, x, min(units, NEVER - ledger.booked))
    ledger.booked = ledger.booked + changed
    if ledger.promised and changed ~= 0 then book_in_searches(ledger, x, changed, put(ledger.promised, x, changed)) end
  end
end

-- Writes a scope key. It lives for as long as anything in it counts; its expiry, and that of its logs, is renewed
-- seldom.
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
    needed = max(needed, leaves(ledger, now + key.shift) - key.offset, leaves_at(key, ledger, ledger.tail),
      leaves_at(key, ledger, ledger.ahead))
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

-- The scope keys of the call, and the texts of those that were read with control.
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
return STEPPED_BACK, ledger_of, refit, time_of, spend_in, spend, book, keys, texts, key_of, save_keys
