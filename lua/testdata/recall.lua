-- Purpose: bring forward lanes that were set aside, and scope keys that hold some, a page
--   at a time, since a pause has ended or limits have changed: the next sweep looks at
--   them again.
-- KEYS[1] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[2] line: hash, thr:{name}:3:line
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] cursor: where the page begins, 0 = the beginning
-- ARGV[3] most: entries to look at, 1..1000
-- ARGV[4] fair: the fair key whose lanes are meant; empty = all
-- ARGV[5] other: "scope=key" that the lanes meant have; empty = all
-- Reply[1] cursor: of the next page, 0 = this was the last
-- Errors: THROTTLE_ARGUMENT <which>
-- Cost: O(most)
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
local agenda, hash = KEYS[1], KEYS[2]
local now = clock(ARGV[1])
local cursor = string.match(ARGV[2], '^%d+$')
local most = integer(ARGV[3], 1, 1000)
local fair, other = ARGV[4], ARGV[5]
if not (hash and now and cursor and most and fair and other) then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end

local page = redis.call('ZSCAN', agenda, cursor, 'COUNT', string.format('%d', most))
for i = 1, #page[2], 2 do
  local member, at = page[2][i], tonumber(page[2][i + 1])
  local scope, key = string.match(member, '^&([^:]*):(.*)$')
  local own, others = string.match(member, '^/([^|]*)|(.*)$')
  local meant = scope and fair == '' and (other == '' or other == scope .. '=' .. key) or own and (fair == '' or fair == own)
    and (other == '' or string.find(',' .. others .. ',', ',' .. other .. ',', 1, true))
  -- Of those that a scope key holds it lets in the first.
  local lane = own and fair == '' and string.sub(member, 2)
  if meant and at > now and not (lane and redis.call('HEXISTS', hash, '~' .. lane) == 1) then
    redis.call('ZADD', agenda, 'XX', string.format('%d', now), member)
  end
end
if cursor == '0' then
  redis.call('ZREM', agenda, '*')
end
return { page[1] }
