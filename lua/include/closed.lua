-- Whether nobody is to be pulled now, since what all share has no room: until the
-- time that the agenda's '*' says, never more than 10 s ahead. A time further
-- ahead is from before the clock stepped back.
local function closed(agenda, now)
  local again = tonumber(redis.call('ZSCORE', agenda, '*') or 0)
  return again > now and again <= now + 10000000
end
