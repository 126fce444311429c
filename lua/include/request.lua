-- What every script is told: when it is, how far ahead jobs are booked, and what the asking process has configured.
-- KEYS[1] control: string, what is set for whole scopes; all other keys begin as it does and are built here
-- ARGV[1] now: us, '' = TIME; ARGV[2] lookahead (us), grace (us), kept (ms): for how long the line's keys live
-- ARGV[3] scopes: "name=mode:units/window/precision,...;...", windows ascending, in us
local call, format, match, gmatch, sub = redis.call, string.format, string.match, string.gmatch, string.sub
local floor, max, min = math.floor, math.max, math.min
local NEVER = 9007199254740992
local write = call -- of what is not a scope key; a look only does not write
local prefix = sub(KEYS[1], 1, -8)

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lookahead, grace, kept = match(ARGV[2], '^(%d+) (%d+) (%d+)$')
lookahead, grace = tonumber(lookahead), tonumber(grace)
local horizon = now + lookahead

-- "units/window/precision,..." as a list
local function limits_of(text)
  local list = {}
  for units, window, precision in gmatch(text, '(-?%d+)/(%d+)/(%d+)') do
    list[#list + 1] = {
      units = tonumber(units), window = tonumber(window), precision = tonumber(precision), window_text = window, precision_text = precision,
    }
  end
  return list
end

-- The scopes of the process, as they are set at run time: mode, limits and whose they are. 'control' is "-", or
-- "mode;" and then as ARGV[3]; there a mode '-' and limits '-' are not set.
local scopes = {}
local function read_scopes(control)
  for name, mode, limits in gmatch(ARGV[3], '([^=;]+)=(%a):([^;]*);') do
    scopes[name] = { mode = mode, text = limits, origin = 'c' }
  end
  if not control and call('EXISTS', KEYS[1]) == 1 then error('FOREIGN control', 0) end -- of another type
  if not control or control == '-' then return end
  local all = match(control, '^([-eso]);')
  if not all then error('FOREIGN control', 0) end
  if all ~= '-' then
    for _, scope in pairs(scopes) do scope.mode = all end
  end
  for name, mode, limits in gmatch(sub(control, 3), '([^=;]+)=([-eso]):([^;]*);') do
    scopes[name] = scopes[name] or { mode = 'o', text = '', origin = 'c' }
    if mode ~= '-' then scopes[name].mode = mode end
    if limits ~= '-' then scopes[name].text, scopes[name].origin = limits, 's' end
  end
end

local function scope_of(name)
  local scope = scopes[match(name, '^[^:]*')]
  if not scope then return { mode = 'o', limits = {}, origin = 'c' } end
  scope.limits = scope.limits or limits_of(scope.text)
  return scope
end
