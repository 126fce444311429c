-- Purpose: tell a page of the fair keys that have jobs in line; change nothing.
-- KEYS[1] line: hash, thr:{name}:3:line
-- KEYS[2] ready: sorted set, thr:{name}:3:ready
-- KEYS[3] control: hash, thr:{name}:3:control
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] cursor: where the page begins, 0 = the beginning
-- ARGV[3] most: entries to look at, 1..1000; a page may have fewer fair keys, even none
-- ARGV[4] scope: the fair scope's name, empty = none
-- Reply[1] now: us, the instant of the answer
-- Reply[2] cursor: of the next page, 0 = this was the last
-- Reply[3] rivals: fair keys that are ready
-- Reply[4] set: what is set at run time for what all share, as in a belief, see read_controls
-- Reply[5] opens: us, until when all are paused, 0 = they are not
-- Reply[6...] per fair key its encoded key, the jobs and units that wait, the units promised,
--   what is set for it, and until when it is paused
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
local hash, ready, control = KEYS[1], KEYS[2], KEYS[3]
local now = clock(ARGV[1])
local cursor = string.match(ARGV[2], '^%d+$')
local most = integer(ARGV[3], 1, 1000)
local scope = string.match(ARGV[4], '^[%w_.-]*$')
if not (now and cursor and most and scope) then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end

-- What is set for a scope key, and until when it is paused; nil for what is no time.
local controls = redis.call('EXISTS', control) == 1
local function set_for(name, key)
  if not controls then
    return '', 0
  end
  local values = redis.call('HMGET', control, '!' .. name .. ':' .. key, '%' .. name .. ':' .. key,
    '%' .. name .. ':', '~' .. name, '~')
  local own, general, mode = values[2], values[3], values[4] or values[5]
  local text = own and 'k' .. own or general and 'd' .. general or ''
  return mode and text .. '~' .. mode or text, tonumber(values[1] or 0)
end

local page = redis.call('HSCAN', hash, cursor, 'MATCH', '@*', 'COUNT', string.format('%d', most))
local set, opens = set_for('global', '')
local reply = { now, page[1], redis.call('ZCARD', ready), set, opens }
for i = 1, #page[2], 2 do
  local fair = string.sub(page[2][i], 2)
  local jobs, units = string.match(page[2][i + 1], '^(%d+) (%d+) %S*$')
  if not jobs then
    return redis.error_reply('THROTTLE_STATE ' .. hash)
  end
  local own, own_opens = '', 0
  if scope ~= '' and fair ~= '' then
    own, own_opens = set_for(scope, fair)
  end
  if not (opens and own_opens) then
    return redis.error_reply('THROTTLE_STATE ' .. control)
  end
  reply[#reply + 1] = fair
  reply[#reply + 1] = tonumber(jobs)
  reply[#reply + 1] = tonumber(units)
  reply[#reply + 1] = tonumber(redis.call('HGET', hash, '#' .. fair) or 0)
  reply[#reply + 1] = own
  reply[#reply + 1] = own_opens
end
return reply
