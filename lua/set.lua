-- Purpose: set a pause, limits or a mode at run time, for all processes.
-- ARGV[4] what: pause, resume, limits or mode; ARGV[5] name: of a scope key; for limits of a scope too; for a mode of a scope, or
-- '' for all
-- ARGV[6] value: of a pause for how long, us, kept if it ends later already; limits as text or a mode, '' takes back what
-- was set, and that a scope key is served less
-- Reply: now, next, what was set before, what is set now: pauses as us, "0" for none, else text, '' for nothing
-- include: request
-- include: entries
-- include: ledger
-- include: placing
-- include: line

-- Read.
local what, name, value = ARGV[4], ARGV[5], ARGV[6]
local found = call('MGET', prefix .. 'none', KEYS[1]) -- refused, with nothing written, while the slot is moved
local control = found[2] or '-'
read_scopes(found[2])
check_line()
local of_key = string.find(name, ':', 1, true)

local function set_pause(key)
  local before = key.paused > now and key.paused or 0
  key.paused = what == 'pause' and max(before, now + value) or 0
  return format('%d', before), format('%d', key.paused)
end

local function set_own_limits(key)
  local before = key.own
  if value == '' then key.less, key.down, key.changed, key.refusals = 0, 0, 0, 0 end
  key.own, key.expire = value == '' and '-' or value, 0
  return before == '-' and '' or before, value
end

-- The control key's text with one thing changed.
local function with(control, scope, mode, limits)
  local all, rest, before, set, order = '-', {}, '', {}, {}
  if control ~= '-' then all, control = sub(control, 1, 1), sub(control, 3) end
  for known, its_mode, its_limits in gmatch(control, '([^=;]+)=([-eso]):([^;]*);') do
    set[known], order[#order + 1] = { its_mode, its_limits }, known
  end
  if scope == '' then
    before, all = all, mode == '' and '-' or mode
  else
    if not set[scope] then
      set[scope], order[#order + 1] = { '-', '-' }, scope
      table.sort(order)
    end
    local which = mode and 1 or 2
    before = set[scope][which]
    set[scope][which] = (mode or limits) == '' and '-' or mode or limits
  end
  for i = 1, #order do
    local s = set[order[i]]
    if s[1] ~= '-' or s[2] ~= '-' then rest[#rest + 1] = order[i] .. '=' .. s[1] .. ':' .. s[2] .. ';' end
  end
  if all == '-' and #rest == 0 then return '-', before end
  return all .. ';' .. table.concat(rest), before
end

-- Decide.
local before, after
if of_key then
  local key = key_of(name)
  key.dirty = true
  if what == 'limits' then before, after = set_own_limits(key) else before, after = set_pause(key) end
else
  control, before = with(control, name, what == 'mode' and value or nil, value)
  before, after = before == '-' and '' or before, value
end

-- Write.
if of_key then
  if not found[2] then call('SET', KEYS[1], '-', 'PX', kept) end
  save_keys()
  hurry(name)
else
  if control == '-' then call('SET', KEYS[1], control, 'PX', kept) else call('SET', KEYS[1], control) end
  local at, looked = format('%d', now), {}
  local members = call('ZRANGE', timers, 0, -1)
  for i = 1, #members do
    local kind = sub(members[i], 1, 1)
    if kind == '+' or kind ~= '=' and (name == '' or sub(members[i], 1, #name + 1) == name .. ':') then
      looked[#looked + 1], looked[#looked + 2] = at, members[i]
    end
    if #looked == 2000 or i == #members and #looked > 0 then
      call('ZADD', timers, 'XX', 'LT', unpack(looked))
      looked = {}
    end
  end
end
return { format('%d', now), format('%d', save_line()), before, after }
