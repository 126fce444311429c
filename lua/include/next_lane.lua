-- The lane to pull next: the front of the fair key with the lowest start tag. None
-- ('') where nobody is ready, and before the time that the agenda's '*' says, when
-- the limits that all jobs share have no room within the lookahead.
local function next_lane(hash, agenda, ready, now)
  local fair = redis.call('ZRANGE', ready, '0', '0')[1]
  if not fair or tonumber(redis.call('ZSCORE', agenda, '*') or 0) > now then
    return ''
  end
  return string.match(redis.call('HGET', hash, '@' .. fair) or '', '^%d+ %d+ (%S*)$') or ''
end
