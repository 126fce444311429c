-- Purpose: end the pause of a scope key. The lanes it held are found by recall.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] name: "scope:key"
-- Reply[1] done: 1 if it was paused, else 0
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(log pauses)
-- Expiry: none is renewed
-- include: clock
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
