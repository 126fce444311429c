-- Sees to it that a lane in which jobs wait is pulled: it is eligible, at the
-- arrival of its head, unless it is set aside. Whatever of that was lost, this
-- puts it right.
-- include: elect
local function enlist(line, kept)
  if redis.call('ZSCORE', line.agenda, '/' .. line.lane) then
    return
  end
  local head = redis.call('ZRANGE', line.queue, '0', '0', 'WITHSCORES')
  redis.call('ZADD', line.heads, string.format('%d', head[2]), line.lane)
  redis.call('PEXPIRE', line.heads, kept)
  elect(line, kept)
end
