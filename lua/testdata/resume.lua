-- Purpose: end the pause of a scope key. The lanes it held are found by recall.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] name: "scope:key"
-- Reply[1] done: 1 if it was paused, else 0
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(log pauses)
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
local control, agenda = KEYS[1], KEYS[2]
local now = clock(ARGV[1])
local name = string.match(ARGV[2], '^[%w_.-]+:[%w_.@%%~-]*$')
if not (now and name) then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end

local ends = tonumber(redis.call('HGET', control, '!' .. name) or 0)
if not ends then
  return redis.error_reply('THROTTLE_STATE ' .. control)
end
redis.call('ZREM', agenda, '!' .. name)
redis.call('HDEL', control, '!' .. name)
return { ends > now and 1 or 0 }
