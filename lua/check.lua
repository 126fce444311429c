-- Purpose: find out before the first decision what this server or this user would refuse: call every command of the
--   scripts, and LPUSH, which records changes, so that it leaves nothing behind, and read INFO.
-- Reply: now (0: TIME is refused)
--   the error of INFO, '' for none
--   the sections of INFO: server, memory, replication, persistence
--   of each command that failed: its name, the text of the error
local prefix = string.sub(KEYS[1], 1, -8)
local key, now = prefix .. 'check', tonumber(ARGV[1]) or 0

local reply = { now, '', '', '', '', '' }
-- An error about the arguments shows that the user may call the command.
local function try(command, ...)
  local answer = redis.pcall(command, ...)
  local wrong = type(answer) == 'table' and answer.err
  if not wrong then return answer end
  for _, harmless in ipairs({ 'wrong number of arguments', 'not an integer', 'WRONGTYPE' }) do
    if string.match(wrong, harmless) then return nil end
  end
  reply[#reply + 1], reply[#reply + 2] = command, wrong
end

local time = try('TIME')
if time and now == 0 then reply[1] = time[1] * 1000000 + time[2] end
-- The key does not exist, so SET with XX writes nothing; HSET lacks a value, and the offset of SETRANGE is no number.
local may_set = try('SET', key, '1', 'XX') ~= nil
local commands = {
  'HSET 1 1 1', 'ZADD XX 1 1', 'SETRANGE x 1', 'PEXPIRE 1000', 'GET', 'MGET', 'GETRANGE 0 0', 'EXISTS', 'HGET 1',
  'HMGET 1', 'HGETALL', 'HEXISTS 1', 'HDEL 1', 'HLEN', 'LINDEX 0', 'LLEN', 'LRANGE 0 0', 'LTRIM 0 0', 'LPOP',
  'ZCARD', 'ZSCORE 1', 'ZRANGE 0 1', 'ZRANGEBYSCORE 0 1', 'ZREM 1', 'ZSCAN 0', 'HSCAN 0', 'UNLINK',
  'LINSERT BEFORE 1 1',
}
for i = 1, #commands do
  local words = {}
  for word in string.gmatch(commands[i], '%S+') do words[#words + 1] = word end
  try(words[1], key, unpack(words, 2))
end
local may_delete = try('DEL', key) ~= nil
-- These commands would write with any arguments, so each is called on a key of another type, and fails.
if may_set and may_delete then
  redis.pcall('SET', key, '1', 'PX', '1000')
  try('RPUSH', key, '1')
  try('LPUSH', key, '1')
  redis.pcall('DEL', key)
  redis.pcall('HSET', key, '1', '1')
  try('APPEND', key, '1')
  redis.pcall('DEL', key)
end
for i, section in ipairs({ 'server', 'memory', 'replication', 'persistence' }) do
  local answer = redis.pcall('INFO', section)
  if type(answer) == 'table' then reply[2] = answer.err else reply[i + 2] = answer end
end
return reply
