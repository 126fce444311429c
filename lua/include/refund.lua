-- Takes back what a fair key's tag was moved by for work that is not to be. Perhaps no tag
-- was moved for it, as it found room at once: so nobody gets ahead of the virtual time by
-- more than four times this work, as several may be on their way at once. Less than none moves the tag on, unless
-- it is past, which means as much as none.
local function refund(line, work)
  local time = tonumber(redis.call('ZSCORE', line.tags, '*') or 0)
  local function moved(tag)
    return work < 0 and tag - work or math.min(tag, math.max(time - 3 * work, tag) - work)
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
