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
