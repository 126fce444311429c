-- The limits and modes of scopes: what the process has configured, and what is set at run time.
-- uses: edges, kinds, ramp
local CONFIGURED, SET_FOR_SCOPE, SET_FOR_KEY = 'c', 's', 'k' -- origins of limits

-- Parses "units/span/precision,..."; whose: the owner, for the error. head: how the text of a ledger of the limit
-- begins. Hours, which have no ledger, stand apart from the list. A ramp has its steps for units; its limit has the
-- units of the last one.
local function limits_of(text, whose)
  local list, at = { hours = false }, 1
  for from, units, span, precision_text, to in gmatch(text, '()(-?%d[%d&:]*)/(%l%d+[^/]*)/(%d+),?()') do
    local head = span .. ' ' .. precision_text .. ' '
    local ramp = not tonumber(units) and ramps.parse(units)
    local most = ramp and ramp[#ramp] or tonumber(units)
    local limit = with_span({ units = most, ramp = ramp, units_text = units, head = head }, span, precision_text)
    if from ~= at or not limit or not most or most < -1 or ramp and not limit.kind.steps then break end
    at = to
    if limit.kind.opens then list.hours = limit else list[#list + 1] = limit end
  end
  if at <= #text then error('FOREIGN ' .. whose, 0) end
  return list
end

-- Parses a setting of run time, "value|until|at|by|why" or NOTHING; until: us, 0 without an end. Returns its value,
-- NOTHING if it has ended, and its end, NEVER if it has none.
local function setting_of(text, whose)
  if text == NOTHING then return text, NEVER end
  local value, ends = match(text, '^([^|]+)|(%d+)|%d+|[^|]*|[^|]*$')
  if not value then error('FOREIGN ' .. whose, 0) end
  ends = ends == '0' and NEVER or tonumber(ends)
  if ends <= now then return NOTHING, NEVER end
  return value, ends
end

-- The scopes of the process with their settings of run time, by name: mode, limits as text, their origin, ends: when
-- the next setting ends; after: the limits that follow limits that end. control is NOTHING or "mode;", and then for
-- each scope that has a setting "name=mode:limits;"; mode and limits are settings.
local scopes = {}
local function read_scopes(control)
  for name, mode, limits in gmatch(configured, '([^=;]+)=(%a):([^;]*);') do
    scopes[name] = { mode = mode, text = limits, origin = CONFIGURED, ends = NEVER }
  end
  if not control and call('EXISTS', KEYS[1]) == 1 then error('FOREIGN control', 0) end -- of another type
  if not control or control == NOTHING then return end
  local of_all, at = match(control, '^([-eso][^;]*);()')
  if not at then error('FOREIGN control', 0) end
  local all, all_ends = setting_of(of_all, 'control')
  for _, scope in pairs(scopes) do
    if all ~= NOTHING then scope.mode, scope.ends = all, all_ends end
  end
  for from, name, of_mode, of_limits, to in gmatch(control, '()([^=;]+)=([-eso][^:;]*):([^;]+);()', at) do
    if from ~= at then break end
    local scope = scopes[name] or { mode = OFF, text = '', origin = CONFIGURED, ends = NEVER }
    local mode, mode_ends = setting_of(of_mode, 'control')
    local limits, limits_end = setting_of(of_limits, 'control')
    at, scopes[name], scope.ends = to, scope, min(scope.ends, mode_ends, limits_end)
    if mode ~= NOTHING then scope.mode = mode end
    if limits_end < NEVER then scope.after = limits_of(scope.text, 'configuration') end
    if limits ~= NOTHING then scope.text, scope.origin = limits, SET_FOR_SCOPE end
  end
  if at ~= #control + 1 then error('FOREIGN control', 0) end
end

-- Reads the edges of all calendars and hours of a text, so that edges which Redis does not have are missed before
-- anything is written.
local function read_edges(text)
  if not string.find(text, '/[hz]') then return end
  for calendar in gmatch(text, '/[hz]%d+([^/]+)/') do edges_of(calendar) end
end

-- Reads the key control, and other keys with it. While the slot is moved, Redis refuses this before any write.
local function read_control(...)
  local found = call('MGET', prefix .. 'none', KEYS[1], ...) -- 'none' never exists
  read_edges(configured)
  if found[2] then read_edges(found[2]) end
  read_scopes(found[2])
  return found
end

-- Makes the key control if it is missing: read_control relies on it to stand beside every other key.
local function make_control(control)
  if not control then call('SET', KEYS[1], NOTHING, 'PX', kept) end
end

local function scope_of(name)
  local scope = scopes[match(name, '^[^:]*')]
  if not scope then return { mode = OFF, limits = {}, origin = CONFIGURED, ends = NEVER } end
  scope.limits = scope.limits or limits_of(scope.text, scope.origin == SET_FOR_SCOPE and 'control' or 'configuration')
  return scope
end
return SET_FOR_KEY, limits_of, setting_of, read_control, make_control, scope_of
