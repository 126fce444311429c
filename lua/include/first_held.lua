-- The first of the lanes that a scope key holds, up to most, by tag. A lane whose fair
-- key was served meanwhile, by another lane of it, moves back first; a tag that is past
-- means as much as none. One that is not set
-- aside was let in and keeps its place for when there is no room after all; where only
-- such are found they are gone.
local function first_held(held, agenda, tags, most)
  local lanes = redis.call('ZRANGE', held, '0', '7', 'WITHSCORES')
  local time, moved = tonumber(redis.call('ZSCORE', tags, '*') or 0), false
  for i = 1, #lanes, 2 do
    local fair = string.match(lanes[i], '^%d+ ([^|]*)')
    local tag = tonumber(redis.call('ZSCORE', tags, '+' .. fair) or nil)
    if tag and tag >= time and tag > tonumber(lanes[i + 1]) then
      redis.call('ZADD', held, string.format('%.17g', tag), lanes[i])
      moved = true
    end
  end
  if moved then
    lanes = redis.call('ZRANGE', held, '0', '7', 'WITHSCORES')
  end
  local found, others = {}, {}
  for i = 1, #lanes, 2 do
    local lane = string.match(lanes[i], '^%d+ (.*)$')
    if not redis.call('ZSCORE', agenda, '/' .. lane) then
      others[#others + 1] = lanes[i]
    elseif #found < most then
      found[#found + 1] = lane
    end
  end
  if others[1] and 2 * #others == #lanes then
    redis.call('ZREM', held, unpack(others))
  end
  return found
end
