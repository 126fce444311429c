-- Purpose: name the first of the lanes that a scope key holds, for it to be pulled, or let
--   one go that cannot be.
-- KEYS[1] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[2] tags: sorted set, thr:{name}:3:tags
-- KEYS[3] held: sorted set, thr:{name}:3:held:<scope>:<key>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] without: the lane to let go; empty = none
-- Reply[1] now: us, the instant of the call
-- Reply[2] lane: to be pulled as one whose time has come; empty = none
-- Errors: THROTTLE_ARGUMENT <which>
-- Cost: O(log lanes)
-- Expiry: none is renewed
-- The integer that a canonical decimal text says, or nil for any other text and
-- for an integer outside low..high. Texts that tonumber alone would take (0x10,
-- 1e3, ' 12 ', nan, inf, 1.5, 007) are refused.
local function integer(text, low, high)
  local n = tonumber(text)
  if n and n >= low and n <= high and string.format('%d', n) == text then
    return n
  end
end
-- The instant of this call in microseconds since 1970: Redis' own clock, read
-- once, unless a test says the time. nil if the test's text is not an instant.
local function clock(text)
  if text == '' then
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
  end
  return integer(text, 0, 9007199254740992)
end
-- The first of the lanes that a scope key holds, up to most, by tag. A lane whose fair
-- key was served meanwhile, by another lane of it, moves back first; a tag that is past
-- means as much as none. One that is not set
-- aside was let in and keeps its place for when there is no room after all; where only
-- such are found they are gone.
local function first_held(held, agenda, tags, most)
  local lanes = redis.call('ZRANGE', held, '0', '7', 'WITHSCORES')
  local time, moved = tonumber(redis.call('ZSCORE', tags, '*') or 0), false
  for i = 1, #lanes, 2 do
    local fair = string.match(lanes[i], '^%d+ ([^|]*)')
    local tag = tonumber(redis.call('ZSCORE', tags, '+' .. fair) or nil)
    if tag and tag >= time and tag > tonumber(lanes[i + 1]) then
      redis.call('ZADD', held, string.format('%.17g', tag), lanes[i])
      moved = true
    end
  end
  if moved then
    lanes = redis.call('ZRANGE', held, '0', '7', 'WITHSCORES')
  end
  local found, others = {}, {}
  for i = 1, #lanes, 2 do
    local lane = string.match(lanes[i], '^%d+ (.*)$')
    if not redis.call('ZSCORE', agenda, '/' .. lane) then
      others[#others + 1] = lanes[i]
    elseif #found < most then
      found[#found + 1] = lane
    end
  end
  if others[1] and 2 * #others == #lanes then
    redis.call('ZREM', held, unpack(others))
  end
  return found
end
-- The name in the agenda of the scope key that holds a set of lanes.
local function holder_of(held)
  return (string.gsub(held, '^.*:held:', '&'))
end
local agenda, tags, held = KEYS[1], KEYS[2], KEYS[3]
local now = clock(ARGV[1])
local without = string.match(ARGV[2], '^[%w_.@%%~-]*|[%w_.@%%~=,-]*$') or ARGV[2] == '' and ''
if not (now and without) then
  return redis.error_reply('THROTTLE_ARGUMENT number or lane')
end
for _, member in ipairs(without ~= '' and redis.call('ZRANGE', held, '0', '7') or {}) do
  if string.match(member, '^%d+ (.*)$') == without then
    redis.call('ZREM', held, member)
  end
end
local lane = first_held(held, agenda, tags, 1)[1]
if not lane and redis.call('EXISTS', held) == 0 then
  redis.call('ZREM', agenda, holder_of(held))
end
return { now, lane or '' }
