-- Takes back what a fair key's tag was moved by for work that is not to be. Others may
-- have gone on meanwhile, and perhaps no tag was moved for it: who is behind gets ahead
-- of the virtual time, and of whoever is first, by no more than this work. Less than none
-- moves the tag on, unless it is past, which means as much as none.
local function refund(line, work)
  local time = tonumber(redis.call('ZSCORE', line.tags, '*') or 0)
  local least = math.min(time, tonumber(redis.call('ZRANGE', line.ready, '0', '0', 'WITHSCORES')[2] or time))
  local function moved(tag)
    return work < 0 and tag - work or math.min(tag, math.max(least, tag) - work)
  end
  local tag = redis.call('ZSCORE', line.ready, line.fair)
  if tag then
    redis.call('ZADD', line.ready, string.format('%.17g', moved(tag)), line.fair)
  end
  tag = tonumber(redis.call('ZSCORE', line.tags, '+' .. line.fair) or nil)
  if tag and (work > 0 or tag >= time) then
    redis.call('ZADD', line.tags, string.format('%.17g', moved(tag)), '+' .. line.fair)
  end
end
