-- Purpose: set a pause, limits or a mode at run time, for all processes.
-- ARGV[4] what: pause, resume, limits or mode
-- ARGV[5] name: of a scope key (pause, resume, limits) or of a scope (limits, mode); mode: '' for all scopes
-- ARGV[6] value
--   pause: for how long, us; a pause that ends later stays
--   limits: as text; '' takes back what was set, and the served share
--   mode: its letter; '' takes back what was set
-- ARGV[7] for how long limits or a mode are set, us; 0: until they are taken back
-- ARGV[8] "by|why": who sets it and why
-- Reply: now, next
--   what was set before, and what is now: the end of a pause, us, 0 for none; else "value|end|at|by|why", '' for none
-- uses: request, scopes, key, queue, line

-- Read.
local what, name, value, ends = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local control = read_control()[2]
check_line()
local of_key = string.find(name, ':', 1, true)

local note = format('|%d|', now) .. ARGV[8]
local setting = value == '' and NOTHING or value .. format('|%d', ends > 0 and now + ends or 0) .. note

-- A setting, '' for nothing.
local function shown(text) return text ~= NOTHING and text or '' end

local function set_pause(key)
  local before = key.paused > now and key.paused or 0
  if what ~= 'pause' then
    key.pause, key.closed, key.closed_at = 0, 0, 0
  elseif now + value > key.pause then
    key.pause, key.note = now + value, note
  end
  key.paused = max(key.pause, key.closed)
  return format('%d', before), format('%d', key.paused)
end

local function set_own_limits(key)
  local before = key.own
  if value == '' then key.less, key.refusals = 0, 0 end
  key.own, key.own_ends, key.expire = setting, ends > 0 and now + ends or NEVER, 0
  return shown(before), shown(setting)
end

-- Returns a setting, or NOTHING if it has ended. Raises needed to the setting's end: the control key must live so long.
local needed = 0
local function lasting(text)
  local value, ends_at = setting_of(text, 'control')
  if value == NOTHING then return value end
  needed = max(needed, ends_at)
  return text
end

-- Returns the text of control with one setting changed and ended settings left out, and the setting before.
local function with(control, scope, is_mode)
  local all, rest, before, set, order = NOTHING, {}, nil, {}, {}
  if control and control ~= NOTHING then all, control = match(control, '^([^;]+);(.*)$') end
  for known, its_mode, its_limits in gmatch(control or '', '([^=;]+)=([^:;]+):([^;]+);') do
    set[known], order[#order + 1] = { its_mode, its_limits }, known
  end
  if scope == '' then
    before, all = all, setting
  else
    if not set[scope] then
      set[scope], order[#order + 1] = { NOTHING, NOTHING }, scope
      table.sort(order)
    end
    local which = is_mode and 1 or 2
    before = set[scope][which]
    set[scope][which] = setting
  end
  if setting_of(before, 'control') == NOTHING then before = NOTHING end
  all = lasting(all)
  for i = 1, #order do
    local mode, limits_text = lasting(set[order[i]][1]), lasting(set[order[i]][2])
    if mode ~= NOTHING or limits_text ~= NOTHING then
      rest[#rest + 1] = order[i] .. '=' .. mode .. ':' .. limits_text .. ';'
    end
  end
  if all == NOTHING and #rest == 0 then return NOTHING, before end
  return all .. ';' .. table.concat(rest), before
end

-- Decide.
if what == 'limits' then limits_of(value, 'limits') end -- if Redis lacks their edges, the call ends here
local before, after
if of_key then
  local key = key_of(name)
  key.dirty = true
  if what == 'limits' then before, after = set_own_limits(key) else before, after = set_pause(key) end
else
  control, before = with(control, name, what == 'mode')
  before, after = shown(before), shown(setting)
end

-- Write.
if of_key then
  make_control(control)
  save_keys()
  hurry(name)
else
  if needed < NEVER then
    call('SET', KEYS[1], control, 'PX', format('%d', kept + floor(max(0, needed - now) / 1000)))
  else
    call('SET', KEYS[1], control)
  end
  hurry_all(name == '' and '' or name .. ':')
end
return { format('%d', now), format('%d', save_line()), before, after }
