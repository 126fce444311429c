-- Purpose: tell a page of the jobs that wait in a lane, in their order, for a forecast;
--   change nothing.
-- KEYS[1] lane: sorted set, thr:{name}:3:lane:<lane>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] from: how many jobs stand before the page
-- ARGV[3] most: jobs on the page, 1..1000
-- Reply[1] now: us, the instant of the answer
-- Reply[2...] per job its id, its weight (units), and when it arrived (us)
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(log jobs + most)
-- Expiry: none, nothing is written
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
local queue, now = KEYS[1], clock(ARGV[1])
local from = integer(ARGV[2], 0, 9007199254740992)
local most = integer(ARGV[3], 1, 1000)
if not (now and from and most) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end

local page = redis.call('ZRANGE', queue, string.format('%d', from), string.format('%d', from + most - 1), 'WITHSCORES')
local reply = { now }
for i = 1, #page, 2 do
  local weight, id = string.match(page[i], '^(%d+):(.*)$')
  if not weight then
    return redis.error_reply('THROTTLE_STATE ' .. queue)
  end
  reply[#reply + 1] = id
  reply[#reply + 1] = tonumber(weight)
  reply[#reply + 1] = tonumber(page[i + 1])
end
return reply
