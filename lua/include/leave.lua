-- Takes a job out of its lane. Where the lane is eligible or set aside it stays,
-- and the next pull clears it away; one that is held is due for that at once. A fair key
-- without a job is not ready.
-- include: write_line
local function leave(line, member, weight, kept)
  redis.call('ZREM', line.queue, member)
  line.jobs, line.units = math.max(0, line.jobs - 1), math.max(0, line.units - weight)
  line.all_jobs, line.all_units = math.max(0, line.all_jobs - 1), math.max(0, line.all_units - weight)
  if line.jobs == 0 and line.since then
    redis.call('ZADD', line.agenda, '0', '/' .. line.lane)
  end
  if line.all_jobs == 0 then
    redis.call('DEL', line.heads)
    redis.call('ZREM', line.ready, line.fair)
  end
  write_line(line, kept)
end
