-- The limits and modes of scopes: what the process has configured, and what is set at run time.
-- uses: kinds
-- Parses "units/span/precision,...". The owner, whose, is for the error only. head is how a ledger of the limit begins.
local function limits_of(text, whose)
  local list, at = {}, 1
  for from, units, span, precision_text, to in gmatch(text, '()(-?%d+)/(%l%d+)/(%d+),?()') do
    local limit = with_span({ units = tonumber(units), head = span .. ' ' .. precision_text .. ' ' }, span, precision_text)
    if from ~= at or not limit or limit.units < -1 then break end
    at, list[#list + 1] = to, limit
  end
  if at <= #text then error('FOREIGN ' .. whose, 0) end
  return list
end

-- What is set at run time is "value|until|at|by|why", '-' if nothing is: until when it is in force, us, 0: until it is taken
-- back; when it was set, by whom and why. Returns the value, '-' when it has ended, and when it ends, NEVER if it does not.
local function setting_of(text, whose)
  if text == NOTHING then return text, NEVER end
  local value, ends = match(text, '^([^|]+)|(%d+)|%d+|[^|]*|[^|]*$')
  if not value then error('FOREIGN ' .. whose, 0) end
  ends = ends == '0' and NEVER or tonumber(ends)
  if ends <= now then return NOTHING, NEVER end
  return value, ends
end

-- The scopes of the process, as they are set at run time: mode, limits and whose they are; ends, when the next of what is set
-- ends; after, the limits that follow those that end. 'control' is "-", or "mode;" and then as the configuration, with what is set in
-- place of the modes and limits.
local scopes = {}
local function read_scopes(control)
  for name, mode, limits in gmatch(configured, '([^=;]+)=(%a):([^;]*);') do
    scopes[name] = { mode = mode, text = limits, origin = 'c', ends = NEVER }
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
    local scope = scopes[name] or { mode = OFF, text = '', origin = 'c', ends = NEVER }
    local mode, mode_ends = setting_of(of_mode, 'control')
    local limits, limits_end = setting_of(of_limits, 'control')
    at, scopes[name], scope.ends = to, scope, min(scope.ends, mode_ends, limits_end)
    if mode ~= NOTHING then scope.mode = mode end
    if limits_end < NEVER then scope.after = limits_of(scope.text, 'configuration') end
    if limits ~= NOTHING then scope.text, scope.origin = limits, 's' end
  end
  if at ~= #control + 1 then error('FOREIGN control', 0) end
end

-- Reads control, and what a script asks for with it; while the slot is moved, Redis refuses the call with nothing written.
local function read_control(...)
  local found = call('MGET', prefix .. 'none', KEYS[1], ...) -- 'none' never exists
  read_scopes(found[2])
  return found
end

-- Makes the key control where it is missing: every other key needs it while the slot is moved.
local function make_control(control)
  if not control then call('SET', KEYS[1], NOTHING, 'PX', kept) end
end

local function scope_of(name)
  local scope = scopes[match(name, '^[^:]*')]
  if not scope then return { mode = OFF, limits = {}, origin = 'c', ends = NEVER } end
  scope.limits = scope.limits or limits_of(scope.text, scope.origin == 's' and 'control' or 'configuration')
  return scope
end
return limits_of, setting_of, read_control, make_control, scope_of
