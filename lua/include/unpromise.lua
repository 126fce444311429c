-- Forgets the booking of a job, which may be of another lane than it is now.
local function unpromise(hash, agenda, id, weight, lane)
  local fair = string.match(lane, '^[^|]*')
  if redis.call('HINCRBY', hash, '#' .. fair, string.format('%d', -weight)) <= 0 then
    redis.call('HDEL', hash, '#' .. fair)
  end
  redis.call('HDEL', hash, '=' .. id)
  redis.call('ZREM', agenda, '=' .. id)
end
