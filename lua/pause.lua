-- Purpose: close a scope key until a time. A pause is never shortened.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] name: "scope:key"
-- ARGV[3] length: us (0..400 days) from now
-- ARGV[4] kept: ms (1..2^53) that the agenda lives
-- Reply[1] now: us, the instant of the call
-- Reply[2] ends: us, when the pause ends
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(log pauses)
-- Expiry: agenda: kept; control: a day after its last pause, none where limits or a mode
--   were set; a sweep takes out a pause that is over
-- include: integer
-- include: clock
local control, agenda = KEYS[1], KEYS[2]
local now = clock(ARGV[1])
local name = string.match(ARGV[2], '^[%w_.-]+:[%w_.@%%~-]*$')
local length = integer(ARGV[3], 0, 34560000000000)
local kept = integer(ARGV[4], 1, 9007199254740992)
if not (now and name and length and kept) then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end

local lives = redis.call('PTTL', control)
local ends = tonumber(redis.call('HGET', control, '!' .. name) or 0)
if not ends then
  return redis.error_reply('THROTTLE_STATE ' .. control)
end
-- The agenda comes first: where it holds something else, nothing is paused.
ends = math.max(ends, now + length)
redis.call('ZADD', agenda, string.format('%d', ends), '!' .. name)
redis.call('PEXPIRE', agenda, string.format('%d', kept))
redis.call('HSET', control, '!' .. name, string.format('%d', ends))
local needed = math.ceil((ends - now) / 1000) + 86400000
if lives ~= -1 and lives < needed then
  redis.call('PEXPIRE', control, string.format('%d', needed))
end
return { now, ends }
