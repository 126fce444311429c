-- Purpose: find out before the first decision what this server or this user would refuse: call every command that the
--   scripts call, in such a way that nothing is left of it, and read INFO.
-- Reply: now (0: TIME is refused), why INFO cannot be read or '', its sections server, memory, replication, persistence,
--   then of each command that failed its name and the error's text
local prefix = string.sub(KEYS[1], 1, -8)
local key, now = prefix .. 'check', tonumber(ARGV[1]) or 0

local reply = { now, '', '', '', '', '' }
-- An error about the arguments shows that the user may call the command.
local function try(command, answer)
  local wrong = type(answer) == 'table' and answer.err
  if not wrong then
    return answer
  elseif not (string.match(wrong, 'wrong number of arguments') or string.match(wrong, 'not an integer') or string.match(wrong, 'WRONGTYPE')) then
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
-- There is no such key. XX asks for one that is there; HSET lacks a value; SETRANGE's place is no number.
local may_set = try('SET', redis.pcall('SET', key, '1', 'XX')) ~= nil
try('HSET', redis.pcall('HSET', key, '1', '1', '1'))
try('ZADD', redis.pcall('ZADD', key, 'XX', '1', '1'))
try('SETRANGE', redis.pcall('SETRANGE', key, 'x', ''))
try('PEXPIRE', redis.pcall('PEXPIRE', key, '1000'))
try('GET', redis.pcall('GET', key))
try('MGET', redis.pcall('MGET', key))
try('GETRANGE', redis.pcall('GETRANGE', key, '0', '0'))
try('EXISTS', redis.pcall('EXISTS', key))
try('HGET', redis.pcall('HGET', key, '1'))
try('HMGET', redis.pcall('HMGET', key, '1'))
try('HGETALL', redis.pcall('HGETALL', key))
try('HEXISTS', redis.pcall('HEXISTS', key, '1'))
try('HDEL', redis.pcall('HDEL', key, '1'))
try('LINDEX', redis.pcall('LINDEX', key, '0'))
try('LLEN', redis.pcall('LLEN', key))
try('LRANGE', redis.pcall('LRANGE', key, '0', '0'))
try('LTRIM', redis.pcall('LTRIM', key, '0', '0'))
try('LPOP', redis.pcall('LPOP', key))
try('ZCARD', redis.pcall('ZCARD', key))
try('ZSCORE', redis.pcall('ZSCORE', key, '1'))
try('ZRANGE', redis.pcall('ZRANGE', key, '0', '1'))
try('ZRANGEBYSCORE', redis.pcall('ZRANGEBYSCORE', key, '0', '1'))
try('ZREM', redis.pcall('ZREM', key, '1'))
try('ZSCAN', redis.pcall('ZSCAN', key, '0'))
local may_delete = try('DEL', redis.pcall('DEL', key)) ~= nil
try('UNLINK', redis.pcall('UNLINK', key))
-- These commands succeed with any arguments, unless the key has another type.
if may_set and may_delete then
  redis.pcall('SET', key, '1', 'PX', '1000')
  try('LPUSH', redis.pcall('LPUSH', key, '1'))
  try('RPUSH', redis.pcall('RPUSH', key, '1'))
  redis.pcall('DEL', key)
  redis.pcall('HSET', key, '1', '1')
  try('APPEND', redis.pcall('APPEND', key, '1'))
  redis.pcall('DEL', key)
end
section(3, redis.pcall('INFO', 'server'))
section(4, redis.pcall('INFO', 'memory'))
section(5, redis.pcall('INFO', 'replication'))
section(6, redis.pcall('INFO', 'persistence'))
return reply
