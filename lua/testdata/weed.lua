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
-- Binds the six keys of the line from keys[first] on and reads, in one command,
-- what the line's hash tells of a lane, a job, and the lane's fair key. What it
-- tells is to be read by read_line, where the lane and the job are in it.
local function bind_line(keys, first, lane, fair, id)
  return {
    hash = keys[first], agenda = keys[first + 1], ready = keys[first + 2], tags = keys[first + 3],
    heads = keys[first + 4], queue = keys[first + 5], lane = lane, fair = fair,
    texts = redis.call('HMGET', keys[first], '/' .. lane, '=' .. id, '@' .. fair, '#' .. fair, '~' .. lane),
  }
end
-- Reads what bind_line has got of the line's hash:
--   '/' lane: "jobs units", what waits in it
--   '=' job: its booking, see promise
--   '@' fair key: "jobs units front", what waits in all its lanes and the lane that
--     is its next
--   '#' fair key: the units that its jobs are promised
--   '~' lane: the arrival of its head, where it is or was held, see hold
-- Returns the error to reply where it holds something else.
local function read_line(line)
  local texts = line.texts
  line.jobs, line.units, line.all_jobs, line.all_units, line.front, line.promised = 0, 0, 0, 0, '', 0
  if texts[1] then
    local jobs, units = string.match(texts[1], '^(%d+) (%d+)$')
    line.jobs, line.units = tonumber(jobs), tonumber(units)
  end
  if texts[2] then
    local slot, weight, holder, ledgers, arrival, lane = string.match(texts[2], '^(%d+) (%d+) (%d+) (%w+) (%d+) (%S+)$')
    line.booking = {
      slot = tonumber(slot), weight = tonumber(weight), holder = tonumber(holder),
      ledgers = ledgers, arrival = tonumber(arrival), lane = lane,
    }
  end
  if texts[3] then
    local jobs, units, front = string.match(texts[3], '^(%d+) (%d+) (%S*)$')
    line.all_jobs, line.all_units, line.front = tonumber(jobs), tonumber(units), front
  end
  if texts[4] then
    line.promised = tonumber(texts[4])
  end
  line.since = texts[5] and string.match(texts[5], '^%d+$')
  if not (line.units and line.front and line.promised) or texts[2] and not line.booking.lane then
    return redis.error_reply('THROTTLE_STATE ' .. line.hash)
  end
end
-- Makes the one of a fair key's eligible lanes whose head is oldest its front, and
-- the fair key ready if it has one. Start-time fair queueing (Goyal, Vin, Cheng
-- 1996): who comes to wait starts at the virtual time ('*' among the tags), or
-- where its own last work ended. That nobody is ready is no reason to begin anew:
-- all may be set aside.
local function elect(line, kept)
  line.front = redis.call('ZRANGE', line.heads, '0', '0')[1] or ''
  if line.front == '' then
    redis.call('ZREM', line.ready, line.fair)
  elseif not redis.call('ZSCORE', line.ready, line.fair) then
    local tag = math.max(tonumber(redis.call('ZSCORE', line.tags, '*') or 0),
      tonumber(redis.call('ZSCORE', line.tags, '+' .. line.fair) or 0))
    redis.call('ZADD', line.ready, string.format('%.17g', tag), line.fair)
    redis.call('PEXPIRE', line.ready, kept)
  end
end
-- Sees to it that a lane in which jobs wait is pulled: it is eligible, at the
-- arrival of its head, unless it is set aside. Whatever of that was lost, this
-- puts it right.
local function enlist(line, kept)
  if redis.call('ZSCORE', line.agenda, '/' .. line.lane) then
    return
  end
  local head = redis.call('ZRANGE', line.queue, '0', '0', 'WITHSCORES')
  redis.call('ZADD', line.heads, string.format('%d', head[2]), line.lane)
  redis.call('PEXPIRE', line.heads, kept)
  elect(line, kept)
end
-- Writes what read_line has read and the caller has changed. What is 0 is not
-- kept. The line's keys live longer than any window, so that a job that waits for
-- one is not forgotten.
local function write_line(line, kept)
  if line.jobs > 0 then
    redis.call('HSET', line.hash, '/' .. line.lane, string.format('%d %d', line.jobs, line.units))
  else
    redis.call('HDEL', line.hash, '/' .. line.lane)
  end
  if line.all_jobs > 0 then
    redis.call('HSET', line.hash, '@' .. line.fair, string.format('%d %d %s', line.all_jobs, line.all_units, line.front))
  else
    redis.call('HDEL', line.hash, '@' .. line.fair)
  end
  redis.call('PEXPIRE', line.hash, kept)
end
-- Whether nobody is to be pulled now, since what all share has no room: until the
-- time that the agenda's '*' says, never more than 10 s ahead. A time further
-- ahead is from before the clock stepped back.
local function closed(agenda, now)
  local again = tonumber(redis.call('ZSCORE', agenda, '*') or 0)
  return again > now and again <= now + 10000000
end
-- The lane to pull next: the front of the fair key with the lowest start tag. None
-- ('') where nobody is ready or what all share has no room.
local function next_lane(hash, agenda, ready, now)
  local fair = redis.call('ZRANGE', ready, '0', '0')[1]
  if not fair or closed(agenda, now) then
    return ''
  end
  return string.match(redis.call('HGET', hash, '@' .. fair) or '', '^%d+ %d+ (%S*)$') or ''
end
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
