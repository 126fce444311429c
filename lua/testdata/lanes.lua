-- Purpose: tell a page of the lanes in which jobs wait, for a forecast; change nothing.
-- KEYS[1] line: hash, thr:{name}:3:line
-- KEYS[2] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[3] ready: sorted set, thr:{name}:3:ready
-- KEYS[4] tags: sorted set, thr:{name}:3:tags
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] cursor: where the page begins, 0 = the beginning
-- ARGV[3] most: entries to look at, 1..1000; a page may have fewer lanes, even none
-- Reply[1] now: us, the instant of the answer
-- Reply[2] cursor: of the next page, 0 = this was the last
-- Reply[3] time: the virtual time
-- Reply[4...] per lane its name, jobs, units, until when it is set aside (us, 0 = it is
--   not), its fair key's tag, and which scope key holds it, empty = none
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(most)
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
-- Until when a lane is set aside, at the latest, 0 = it is not; and what holds it, as
-- scope:key, empty = nothing. A lane that is held is looked at when its scope key is.
local function aside_until(hash, agenda, lane)
  local ends, holder = tonumber(redis.call('ZSCORE', agenda, '/' .. lane) or 0), ''
  local holds = ends > 0 and redis.call('HEXISTS', hash, '~' .. lane) == 1
  for scope, key in string.gmatch(holds and string.match(lane, '|(.*)$') or '', '([^=,]+)=([^,]*)') do
    local due = tonumber(redis.call('ZSCORE', agenda, '&' .. scope .. ':' .. key) or nil)
    if due and due < ends then
      ends, holder = due, scope .. ':' .. key
    end
  end
  return ends, holder
end
local hash, agenda, ready, tags = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = clock(ARGV[1])
local cursor = string.match(ARGV[2], '^%d+$')
local most = integer(ARGV[3], 1, 1000)
if not (now and cursor and most) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end

local page = redis.call('HSCAN', hash, cursor, 'MATCH', '/*', 'COUNT', string.format('%d', most))
local reply = { now, page[1], redis.call('ZSCORE', tags, '*') or '0' }
for i = 1, #page[2], 2 do
  local lane = string.sub(page[2][i], 2)
  local jobs, units = string.match(page[2][i + 1], '^(%d+) (%d+)$')
  local fair = string.match(lane, '^[^|]*')
  if not jobs then
    return redis.error_reply('THROTTLE_STATE ' .. hash)
  end
  reply[#reply + 1] = lane
  reply[#reply + 1] = tonumber(jobs)
  reply[#reply + 1] = tonumber(units)
  local ends, holder = aside_until(hash, agenda, lane)
  reply[#reply + 1] = ends
  reply[#reply + 1] = redis.call('ZSCORE', ready, fair) or redis.call('ZSCORE', tags, '+' .. fair) or '0'
  reply[#reply + 1] = holder
end
return reply
