-- Takes back what a fair key's tag was moved by for work that is not to be, as far as the
-- virtual time or whoever is first; less than none moves it on.
local function refund(line, work)
  local time = tonumber(redis.call('ZSCORE', line.tags, '*') or 0)
  time = math.min(time, tonumber(redis.call('ZRANGE', line.ready, '0', '0', 'WITHSCORES')[2] or time))
  local function moved(tag)
    return work < 0 and tag - work or math.min(tag, math.max(time, tag - work))
  end
  local tag = redis.call('ZSCORE', line.ready, line.fair)
  if tag then
    redis.call('ZADD', line.ready, string.format('%.17g', moved(tag)), line.fair)
  end
  tag = redis.call('ZSCORE', line.tags, '+' .. line.fair)
  if tag then
    redis.call('ZADD', line.tags, string.format('%.17g', moved(tag)), '+' .. line.fair)
  end
end
