-- Purpose: take jobs out of a lane that nobody will come for, tell those at its front
--   then, and leave the lane alone meanwhile. Nothing was booked for them, so no ledger
--   and no tag changes.
-- KEYS[1] line: hash, thr:{name}:3:line
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[3] ready: sorted set, thr:{name}:3:ready
-- KEYS[4] tags: sorted set, thr:{name}:3:tags
-- KEYS[5] heads: sorted set, thr:{name}:3:heads:<fair key>
-- KEYS[6] lane: sorted set, thr:{name}:3:lane:<lane>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] lane: its name
-- ARGV[3] kept: ms (1..2^53) that the line's keys live
-- ARGV[4] aside: us (0..300 s) that the lane is left alone, if it is not for longer; 0 =
--   it can be pulled
-- ARGV[5] most: jobs to tell, 1..1000
-- ARGV[6] age: us (0..300 s) since its arrival that a job is told after, and those behind
--   it; whoever plans it may be about to enqueue it
-- ARGV[7] count: how many jobs to take out, 0..1000
-- ARGV[8...] as many jobs, "weight:id"; those that are not there are passed over
-- Reply[1] now: us, the instant of the call
-- Reply[2] next: the lane to pull now, empty = none
-- Reply[3...] per job at the front its id and weight (units)
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O((most + jobs) x log jobs in the lane)
-- Expiry: the line's keys: kept
-- include: integer
-- include: clock
-- include: bind_line
-- include: read_line
-- include: elect
-- include: enlist
-- include: write_line
-- include: next_lane
local now = clock(ARGV[1])
local lane, kept = ARGV[2], integer(ARGV[3], 1, 9007199254740992)
local aside = integer(ARGV[4], 0, 300000000)
local most = integer(ARGV[5], 1, 1000)
local age, count = integer(ARGV[6], 0, 300000000), integer(ARGV[7], 0, 1000)
local gone = count and { unpack(ARGV, 8) }
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
if not (now and kept and aside and most and age and gone and fair) or #gone ~= count then
  return redis.error_reply('THROTTLE_ARGUMENT number or lane')
end
local line = bind_line(KEYS, 1, lane, fair, '')
local wrong = read_line(line)
if wrong then
  return wrong
end

kept = string.format('%d', kept)
local leaves, left, units = {}, 0, 0
for i = 1, #gone do
  if not string.match(gone[i], '^%d+:.') then
    return redis.error_reply('THROTTLE_ARGUMENT job')
  end
  leaves[gone[i]] = true
end
local reply = { now, '' }
local first = redis.call('ZRANGE', line.queue, '0', string.format('%d', most + #gone - 1), 'WITHSCORES')
for i = 1, #first, 2 do
  local weight, id = string.match(first[i], '^(%d+):(.*)$')
  if not weight then
    return redis.error_reply('THROTTLE_STATE ' .. line.queue)
  end
  if tonumber(first[i + 1]) > now - age then
    break
  end
  if not leaves[first[i]] and #reply < 2 + 2 * most then
    reply[#reply + 1] = id
    reply[#reply + 1] = tonumber(weight)
  end
end
local before = redis.call('ZSCORE', line.agenda, '/' .. lane)

for i = 1, #gone do
  if redis.call('ZREM', line.queue, gone[i]) == 1 then
    left, units = left + 1, units + tonumber(string.match(gone[i], '^%d+'))
  end
end
local waits = redis.call('ZCARD', line.queue) > 0
if not waits then
  -- Nobody is left, whatever the numbers say.
  left, units = line.jobs, line.units
end
line.jobs, line.units = math.max(0, line.jobs - left), math.max(0, line.units - units)
line.all_jobs, line.all_units = math.max(0, line.all_jobs - left), math.max(0, line.all_units - units)
if not waits and line.since then
  redis.call('ZADD', line.agenda, string.format('%d', now), '/' .. lane) -- the next pull clears it away
elseif not waits or aside == 0 and not (line.since and before) then
  redis.call('ZREM', line.agenda, '/' .. lane)
elseif aside > 0 then -- else its scope key goes on holding it
  local again = math.max(now + aside, tonumber(before or 0))
  redis.call('ZADD', line.agenda, string.format('%d', again), '/' .. lane)
end
redis.call('ZREM', line.heads, lane)
if waits and aside == 0 then
  enlist(line, kept)
end
elect(line, kept)
write_line(line, kept)
redis.call('PEXPIRE', line.agenda, kept)
redis.call('PEXPIRE', line.queue, kept)
reply[2] = next_lane(line.hash, line.agenda, line.ready, now)
return reply
