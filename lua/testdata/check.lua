-- Purpose: find out before the first decision what this server or this user would refuse:
--   call every command that the scripts call, in such a way that nothing comes of it, and
--   read INFO.
-- KEYS[1] scratch: never written, thr:{name}:3:check
-- KEYS[2...] others: one key of each kind that the scripts use, to see that they may be read
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- Reply[1] now: us, the instant of the call, 0 = TIME is refused
-- Reply[2] unread: why INFO cannot be read, empty = it can
-- Reply[3] server: that section of INFO
-- Reply[4] memory: that section of INFO
-- Reply[5] replication: that section of INFO
-- Reply[6] persistence: that section of INFO
-- Reply[7...] per command that failed its name and the error's text
-- Errors: THROTTLE_ARGUMENT <which>
-- Cost: O(1), about thirty commands
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
local key, others = KEYS[1], { unpack(KEYS, 2) }
local now = ARGV[1] == '' and 0 or integer(ARGV[1], 0, 9007199254740992)
if not (key and others[1] and now) then
  return redis.error_reply('THROTTLE_ARGUMENT number or keys')
end

local reply = { now, '', '', '', '', '' }
-- Who complains of what the command is to do has been allowed to call it.
local function try(command, answer)
  local wrong = type(answer) == 'table' and answer.err
  if not wrong then
    return answer
  elseif not (string.match(wrong, 'wrong number of arguments') or string.match(wrong, 'not an integer')) then
    reply[#reply + 1] = command
    reply[#reply + 1] = wrong
  end
end
local function section(index, answer)
  if type(answer) == 'table' then
    reply[2] = answer.err
  else
    reply[index] = answer
  end
end

local time = try('TIME', redis.pcall('TIME'))
if time and now == 0 then
  reply[1] = time[1] * 1000000 + time[2]
end
-- There is no such key. XX asks for one that is there; HSET lacks a value, HINCRBY a number.
try('SET', redis.pcall('SET', key, '1', 'XX'))
try('HSET', redis.pcall('HSET', key, '1', '1', '1'))
try('HINCRBY', redis.pcall('HINCRBY', key, '1', 'one'))
try('PERSIST', redis.pcall('PERSIST', key))
try('PEXPIRE', redis.pcall('PEXPIRE', key, '1000'))
try('HGET', redis.pcall('HGET', key, '1'))
try('HMGET', redis.pcall('HMGET', key, '1'))
try('HEXISTS', redis.pcall('HEXISTS', key, '1'))
try('HSCAN', redis.pcall('HSCAN', key, '0'))
try('HDEL', redis.pcall('HDEL', key, '1'))
try('ZADD', redis.pcall('ZADD', key, 'XX', '1', '1'))
try('ZCARD', redis.pcall('ZCARD', key))
try('ZCOUNT', redis.pcall('ZCOUNT', key, '0', '1'))
try('ZRANGE', redis.pcall('ZRANGE', key, '0', '1'))
try('ZRANGEBYSCORE', redis.pcall('ZRANGEBYSCORE', key, '0', '1'))
try('ZRANK', redis.pcall('ZRANK', key, '1'))
try('ZSCAN', redis.pcall('ZSCAN', key, '0'))
try('ZSCORE', redis.pcall('ZSCORE', key, '1'))
try('ZREM', redis.pcall('ZREM', key, '1'))
try('GET', redis.pcall('GET', key))
try('PTTL', redis.pcall('PTTL', key))
try('EXISTS', redis.pcall('EXISTS', unpack(others)))
try('DEL', redis.pcall('DEL', key))
section(3, redis.pcall('INFO', 'server'))
section(4, redis.pcall('INFO', 'memory'))
section(5, redis.pcall('INFO', 'replication'))
section(6, redis.pcall('INFO', 'persistence'))
return reply
