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
-- include: clock
-- include: first_held
-- include: holder_of
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
