-- What every script is told: when it is, how far ahead jobs are booked, and what the asking process has configured.
-- KEYS[1] control: string, what is set for whole scopes; all other keys begin as it does and are built here
-- ARGV[1] now: us, '' = TIME; ARGV[2] lookahead (us), grace (us), kept (ms): for how long the line's keys live; lower: units
--   of a priority for each of the next lower one, while jobs of both wait; steps: how many one call may take, of about a quarter us
-- ARGV[3] scopes: "name=mode:units/span/precision,...;...", spans in the order of kinds.lua
-- include: kinds
local call, format, match, gmatch, sub = redis.call, string.format, string.match, string.gmatch, string.sub
local floor, max, min = math.floor, math.max, math.min
local NEVER = 9007199254740992
local SPILL = 512 -- bytes of entries that a scope key's string has at most before a start, the others are in its log
local FINEST = 1000 -- sub-windows of a window that counts more units than twice as many
local write = call -- of what is not a scope key; a look only does not write
local prefix = sub(KEYS[1], 1, -8)

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lookahead, grace, kept, lower, steps = match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
lookahead, grace = tonumber(lookahead), tonumber(grace)
local horizon = now + lookahead

-- The key of what is kept of a grant.
local function of_grant(kind, id, start)
  local short = #id <= 64 and not string.find(id, '[^%w_.@-]') and id or '~' .. redis.sha1hex(id)
  return prefix .. kind .. format(':%d:', start) .. short
end

-- Notes the places that a granted job occupies, until it gives them back or its lease is over:
-- run:<start>:<id>: string, "flow|paid|name=span:sub-window:units,...", the flow with its priority as in a lane's name,
--   paid: us, until when its flow's tags are charged, where flows pay for time: a start pays for one second
-- Each place is { name of the scope key, limit or ledger, sub-window, units }. Returns the shortest lease, 0 without places.
local function occupy(id, start, class, paid, places, from)
  local shortest, longest, texts = NEVER, 0, {}
  for i = 1, #places do
    local name, counted, at, units = unpack(places[i])
    texts[i] = format('%s=%s:%d:%d', name, counted.span, at, units)
    shortest, longest = min(shortest, counted.length), max(longest, counted.length)
  end
  if #places == 0 then return 0 end
  local text = class .. format('|%d|', paid) .. table.concat(texts, ',')
  write('SET', of_grant('run', id, start), text, 'PX', format('%d', floor((from + 1.01 * longest - now) / 1000) + 60000))
  return shortest
end

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
  if text == '-' then return text, NEVER end
  local value, ends = match(text, '^([^|]+)|(%d+)|%d+|[^|]*|[^|]*$')
  if not value then error('FOREIGN ' .. whose, 0) end
  ends = ends == '0' and NEVER or tonumber(ends)
  if ends <= now then return '-', NEVER end
  return value, ends
end

-- The scopes of the process, as they are set at run time: mode, limits and whose they are; ends, when the next of what is set
-- ends; after, the limits that follow those that end. 'control' is "-", or "mode;" and then as ARGV[3], with what is set in
-- place of the modes and limits.
local scopes = {}
local function read_scopes(control)
  for name, mode, limits in gmatch(ARGV[3], '([^=;]+)=(%a):([^;]*);') do
    scopes[name] = { mode = mode, text = limits, origin = 'c', ends = NEVER }
  end
  if not control and call('EXISTS', KEYS[1]) == 1 then error('FOREIGN control', 0) end -- of another type
  if not control or control == '-' then return end
  local of_all, at = match(control, '^([-eso][^;]*);()')
  if not at then error('FOREIGN control', 0) end
  local all, all_ends = setting_of(of_all, 'control')
  for _, scope in pairs(scopes) do
    if all ~= '-' then scope.mode, scope.ends = all, all_ends end
  end
  for from, name, of_mode, of_limits, to in gmatch(control, '()([^=;]+)=([-eso][^:;]*):([^;]+);()', at) do
    if from ~= at then break end
    local scope = scopes[name] or { mode = 'o', text = '', origin = 'c', ends = NEVER }
    local mode, mode_ends = setting_of(of_mode, 'control')
    local limits, limits_end = setting_of(of_limits, 'control')
    at, scopes[name], scope.ends = to, scope, min(scope.ends, mode_ends, limits_end)
    if mode ~= '-' then scope.mode = mode end
    if limits_end < NEVER then scope.after = limits_of(scope.text, 'ARGV[3]') end
    if limits ~= '-' then scope.text, scope.origin = limits, 's' end
  end
  if at ~= #control + 1 then error('FOREIGN control', 0) end
end

local function scope_of(name)
  local scope = scopes[match(name, '^[^:]*')]
  if not scope then return { mode = 'o', limits = {}, origin = 'c', ends = NEVER } end
  scope.limits = scope.limits or limits_of(scope.text, scope.origin == 's' and 'control' or 'ARGV[3]')
  return scope
end
