-- Has those looked at again that may have room now: everybody, if what all share had
-- none, the lanes that a scope key of the job's holds, and its own, unless it is one of
-- these.
local function make_room(line, names, now)
  local holds = false
  for name in string.gmatch(names, '[+-]([^ ]+)') do
    if redis.call('ZSCORE', line.agenda, '&' .. name) then
      redis.call('ZADD', line.agenda, string.format('%d', now), '&' .. name)
      holds = true
    end
  end
  redis.call('ZREM', line.agenda, '*')
  if not (holds and line.since) then
    redis.call('ZREM', line.agenda, '/' .. line.lane)
  end
end
