-- Purpose: find what has no start that pulls it: lanes whose time has come, bookings
--   whose jobs did not come, scope keys that hold lanes and have room, pauses that are over,
--   and the fair key whose turn it is. What is found is left
--   alone for a second, so that of several processes one looks after it.
-- KEYS[1] line: hash, thr:{name}:3:line
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[3] ready: sorted set, thr:{name}:3:ready
-- KEYS[4] control: hash, thr:{name}:3:control
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] most: of lanes and bookings, 1..1000
-- ARGV[3] forget: us after its slot that a booking is told for the last time and forgotten
-- ARGV[4] jobs: 1 finds overdue bookings too, 0 leaves them to others for 144 times as long
-- Reply[1] now: us, the instant of the call
-- Reply[2] next: the lane to pull now, empty = none
-- Reply[3] found: how many were due; most or more means that there may be more
-- Reply[4...] lanes whose time has come: 'lane', name; scope keys that hold lanes: 'key',
--   scope:key; overdue bookings: 'job', id, weight (units), slot (us), lane
-- Errors: THROTTLE_ARGUMENT <which>
-- Cost: O(found); four or five commands when idle
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
-- Forgets the booking of a job, which may be of another lane than it is now.
local function unpromise(hash, agenda, id, weight, lane)
  local fair = string.match(lane, '^[^|]*')
  if redis.call('HINCRBY', hash, '#' .. fair, string.format('%d', -weight)) <= 0 then
    redis.call('HDEL', hash, '#' .. fair)
  end
  redis.call('HDEL', hash, '=' .. id)
  redis.call('ZREM', agenda, '=' .. id)
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
local hash, agenda, ready, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = clock(ARGV[1])
local most = integer(ARGV[2], 1, 1000)
local forget = integer(ARGV[3], 0, 34560000000000)
local jobs = integer(ARGV[4], 0, 1)
if not (now and most and forget and jobs) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end

local due = redis.call('ZRANGEBYSCORE', agenda, '-inf', string.format('%d', now), 'LIMIT', '0', string.format('%d', most))
-- Lanes are set aside for 300 s at most. Those further ahead are from before the
-- clock stepped back.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', agenda, string.format('(%d', now + 300000000), '+inf',
  'LIMIT', '0', string.format('%d', most))) do
  if string.match(member, '^/') then
    due[#due + 1] = member
  end
end
local reply = { now, '', #due }
for i = 1, #due do
  local kind, id = string.match(due[i], '^([/=*!&])(.*)$')
  local again = now + 1000000
  if kind == '/' or kind == '&' then
    reply[#reply + 1] = kind == '/' and 'lane' or 'key'
    reply[#reply + 1] = id
  elseif kind == '=' then
    local slot, weight, lane = string.match(redis.call('HGET', hash, '=' .. id) or '', '^(%d+) (%d+) %d+ %w+ %d+ (%S+)$')
    -- Who does not bring jobs leaves them to those who do: for a day, where forget is ten minutes.
    local over = slot and slot + forget * (jobs == 1 and 1 or 144) <= now
    if not slot then
      again = nil
    elseif jobs == 0 then
      again = slot + forget > now and slot + 500000 or now + 60000000
    else
      -- The longer it is overdue, the less often it is looked for, until it is forgotten.
      again = math.min(now + math.max(1000000, math.floor((now - slot) / 2)), slot + forget)
      reply[#reply + 1] = 'job'
      reply[#reply + 1] = id
      reply[#reply + 1] = tonumber(weight)
      reply[#reply + 1] = tonumber(slot)
      reply[#reply + 1] = lane
    end
    if over then
      -- It is told all the same: perhaps nobody has looked for it, since all were away
      -- or the clock has stepped.
      unpromise(hash, agenda, id, weight, lane)
      again = nil
    end
  elseif kind == '!' then
    again = tonumber(redis.call('HGET', control, due[i]) or 0) or 0
    if again <= now then
      redis.call('HDEL', control, due[i])
      again = nil
    end
  else
    again = nil
  end
  if again then
    redis.call('ZADD', agenda, string.format('%d', again), due[i])
  else
    redis.call('ZREM', agenda, due[i])
  end
end
reply[2] = next_lane(hash, agenda, ready, now)
if reply[2] == '' and not closed(agenda, now) then
  -- Ready without a lane: what says so was lost.
  local lost = redis.call('ZRANGE', ready, '0', '0')[1]
  if lost then
    redis.call('ZREM', ready, lost)
  end
end
return reply
