-- Writes what read_line has read and the caller has changed. What is 0 is not
-- kept. The line's keys live longer than any window, so that a job that waits for
-- one is not forgotten.
local function write_line(line, kept)
  if line.jobs > 0 then
    redis.call('HSET', line.hash, '/' .. line.lane, string.format('%d %d', line.jobs, line.units))
  else
    redis.call('HDEL', line.hash, '/' .. line.lane)
  end
  if line.all_jobs > 0 then
    redis.call('HSET', line.hash, '@' .. line.fair, string.format('%d %d %s', line.all_jobs, line.all_units, line.front))
  else
    redis.call('HDEL', line.hash, '@' .. line.fair)
  end
  redis.call('PEXPIRE', line.hash, kept)
end
