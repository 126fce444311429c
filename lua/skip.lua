-- Purpose: leave a lane alone for a second without a look at its ledgers, when the
--   caller cannot pull it: it does not know its scopes, or a key holds something else.
-- KEYS[1] line: hash, thr:{name}:3:line
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[3] ready: sorted set, thr:{name}:3:ready
-- KEYS[4] tags: sorted set, thr:{name}:3:tags
-- KEYS[5] heads: sorted set, thr:{name}:3:heads:<fair key>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] lane: its name
-- ARGV[3] kept: ms (1..2^53) that the line's keys live
-- Reply[1] now: us, the instant of the call
-- Reply[2] next: the lane to pull now, empty = none
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(log lanes)
-- Expiry: the line's keys: kept
-- include: integer
-- include: clock
-- include: bind_line
-- include: read_line
-- include: elect
-- include: write_line
-- include: next_lane
local now = clock(ARGV[1])
local lane, kept = ARGV[2], integer(ARGV[3], 1, 9007199254740992)
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
if not (now and kept and fair) then
  return redis.error_reply('THROTTLE_ARGUMENT number or lane')
end
local line = bind_line(KEYS, 1, lane, fair, '')
local wrong = read_line(line)
if wrong then
  return wrong
end

redis.call('ZREM', line.heads, lane)
redis.call('ZADD', line.agenda, string.format('%d', now + 1000000), '/' .. lane)
elect(line, string.format('%d', kept))
write_line(line, string.format('%d', kept))
redis.call('PEXPIRE', line.agenda, string.format('%d', kept))
return { now, next_lane(line.hash, line.agenda, line.ready, now) }
