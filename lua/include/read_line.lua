-- Binds the six keys of the line from keys[first] on and reads, in one command,
-- what the line's hash tells of a lane, of its fair key and of one job:
--   '/' lane: "jobs units", what waits in it
--   '@' fair key: "jobs units front", what waits in all its lanes and the lane that
--     is its next
--   '=' job: its booking, see promise
-- Returns nil and the error to reply where it holds something else.
local function read_line(keys, first, lane, id)
  local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
  if not fair or not keys[first + 5] then
    return nil, redis.error_reply('THROTTLE_ARGUMENT lane')
  end
  local line = {
    hash = keys[first], agenda = keys[first + 1], ready = keys[first + 2], tags = keys[first + 3],
    heads = keys[first + 4], queue = keys[first + 5], lane = lane, fair = fair,
    jobs = 0, units = 0, all_jobs = 0, all_units = 0, front = '',
  }
  local texts = redis.call('HMGET', line.hash, '/' .. lane, '@' .. fair, '=' .. id)
  if texts[1] then
    local jobs, units = string.match(texts[1], '^(%d+) (%d+)$')
    line.jobs, line.units = tonumber(jobs), tonumber(units)
  end
  if texts[2] then
    local jobs, units, front = string.match(texts[2], '^(%d+) (%d+) (%S*)$')
    line.all_jobs, line.all_units, line.front = tonumber(jobs), tonumber(units), front
  end
  if texts[3] then
    local slot, weight, holder, ledgers, arrival, of = string.match(texts[3], '^(%d+) (%d+) (%d+) (%w+) (%d+) (%S+)$')
    line.booking = {
      slot = tonumber(slot), weight = tonumber(weight), holder = tonumber(holder),
      ledgers = ledgers, arrival = tonumber(arrival), lane = of,
    }
  end
  if not (line.units and line.front) or texts[3] and not line.booking.lane then
    return nil, redis.error_reply('THROTTLE_STATE ' .. line.hash)
  end
  return line
end
