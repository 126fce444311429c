-- Several limits on several keys, each counted in sub-windows of a hash: the
-- scheme of Josiah Carlson's "Introduction to rate limiting with Redis" (2014).
-- For each limit a hash has the count of the window, the oldest sub-window that
-- is in it, and a count for each sub-window. A first pass takes what has left
-- out of the counts and looks for room, a second one counts the call everywhere.
-- ARGV[1] weight; ARGV[1+i] the limits of KEYS[i], JSON: [units, window us, precision us]...
local weight = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local counters = {}
for i, key in ipairs(KEYS) do
  for _, limit in ipairs(cjson.decode(ARGV[1 + i])) do
    local units, window, precision = limit[1], limit[2], limit[3]
    local name = string.format('%d:%d:', window, precision)
    local block = math.floor(now / precision)
    local first = block - math.ceil(window / precision) + 1
    local had = redis.call('HMGET', key, name, name .. 'o')
    local count, oldest = tonumber(had[1] or 0), tonumber(had[2] or first)
    if oldest < first then
      local gone = {}
      for b = oldest, math.min(first - 1, oldest + 200) do
        gone[#gone + 1] = string.format('%s%d', name, b)
      end
      for _, n in ipairs(redis.call('HMGET', key, unpack(gone))) do
        count = count - (n or 0)
      end
      redis.call('HDEL', key, unpack(gone))
      redis.call('HSET', key, name, count)
    end
    if count + weight > units then
      return 0
    end
    counters[#counters + 1] = { key, name, string.format('%d', first), string.format('%s%d', name, block), window }
  end
end
for _, c in ipairs(counters) do
  redis.call('HSET', c[1], c[2] .. 'o', c[3])
  redis.call('HINCRBY', c[1], c[2], weight)
  redis.call('HINCRBY', c[1], c[4], weight)
  redis.call('PEXPIRE', c[1], math.ceil(c[5] / 1000))
end
return 1
