-- The sliding log: a sorted set with a member for each unit, scored with the time at which
-- the unit was used. ARGV: a name for the call, weight, window in us, then the limit of each of KEYS in units.
local weight, window = tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%d', now - window))
  if redis.call('ZCARD', key) + weight > tonumber(ARGV[3 + i]) then
    return 0
  end
end
local members = {}
for unit = 1, weight do
  members[2 * unit - 1] = string.format('%d', now)
  members[2 * unit] = string.format('%d-%s-%d', now, ARGV[1], unit)
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, unpack(members))
  redis.call('PEXPIRE', key, math.ceil(window / 1000))
end
return 1
