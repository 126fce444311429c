-- Puts a job in its lane: behind the others, or where it stood before.
-- include: enlist
-- include: write_line
local function join(line, member, weight, arrival, kept)
  redis.call('ZADD', line.queue, string.format('%d', arrival), member)
  redis.call('PEXPIRE', line.queue, kept)
  -- Beyond 2^53 units would not be counted right, nor written as integers.
  line.jobs, line.units = line.jobs + 1, math.min(line.units + weight, 9007199254740992)
  line.all_jobs, line.all_units = line.all_jobs + 1, math.min(line.all_units + weight, 9007199254740992)
  enlist(line, kept)
  write_line(line, kept)
end
