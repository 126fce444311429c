-- Puts a job in its lane: behind the others, or where it stood before.
-- include: enlist
-- include: write_line
local function join(line, member, weight, arrival, kept)
  redis.call('ZADD', line.queue, string.format('%d', arrival), member)
  redis.call('PEXPIRE', line.queue, kept)
  line.jobs, line.units = line.jobs + 1, line.units + weight
  line.all_jobs, line.all_units = line.all_jobs + 1, line.all_units + weight
  enlist(line, kept)
  write_line(line, kept)
end
