-- The lane to pull next: the front of the fair key with the lowest start tag. None
-- ('') where nobody is ready or what all share has no room.
-- include: closed
local function next_lane(hash, agenda, ready, now)
  local fair = redis.call('ZRANGE', ready, '0', '0')[1]
  if not fair or closed(agenda, now) then
    return ''
  end
  return string.match(redis.call('HGET', hash, '@' .. fair) or '', '^%d+ %d+ (%S*)$') or ''
end
