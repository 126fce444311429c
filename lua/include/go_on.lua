-- Moves the tag of a fair key that was served on, and the virtual time. That goes on with
-- the tags that are served, and by what each of those who are ready, and one who comes,
-- would have got of this work (after WF2Q+, Bennett and Zhang 1996): else those who come
-- with one job each have the tag of those who wait, and names decide. It is never more
-- than a job ahead of the last who is ready, nor past waits.
local function go_on(line, served, tag, work, waits, kept)
  redis.call('ZADD', line.ready, string.format('%.17g', tag), line.fair)
  local time = tonumber(redis.call('ZSCORE', line.tags, '*') or 0)
  local last = tonumber(redis.call('ZRANGE', line.ready, '-1', '-1', 'WITHSCORES')[2])
  time = math.min(time + work / (redis.call('ZCARD', line.ready) + 1), last + work, waits)
  time = math.max(served, time)
  redis.call('ZADD', line.tags, string.format('%.17g', time), '*', string.format('%.17g', tag), '+' .. line.fair)
  redis.call('PEXPIRE', line.tags, kept)
  -- What is past means as much as none; a few each time, so that all go.
  local past = redis.call('ZRANGEBYSCORE', line.tags, '-inf', string.format('(%.17g', time), 'LIMIT', '0', '8')
  if past[1] then
    redis.call('ZREM', line.tags, unpack(past))
  end
end
