-- Until when a lane is set aside, at the latest, 0 = it is not; and what holds it, as
-- scope:key, empty = nothing. A lane that is held is looked at when its scope key is.
local function aside_until(hash, agenda, lane)
  local ends, holder = tonumber(redis.call('ZSCORE', agenda, '/' .. lane) or 0), ''
  local holds = ends > 0 and redis.call('HEXISTS', hash, '~' .. lane) == 1
  for scope, key in string.gmatch(holds and string.match(lane, '|(.*)$') or '', '([^=,]+)=([^,]*)') do
    local due = tonumber(redis.call('ZSCORE', agenda, '&' .. scope .. ':' .. key) or nil)
    if due and due < ends then
      ends, holder = due, scope .. ':' .. key
    end
  end
  return ends, holder
end
