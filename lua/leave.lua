-- Purpose: take jobs out of line that will not come, and give their bookings back.
-- ARGV[4..] ids
-- Reply: now, next, then 1 for each job that had a place or a booking, else 0
-- include: request
-- include: entries
-- include: ledger
-- include: placing
-- include: line

-- Read.
local found = call('MGET', prefix .. 'none', KEYS[1]) -- refused, with nothing written, while the slot is moved
read_scopes(found[2])
local ids, left = {}, {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end
local records = call('HMGET', jobs, unpack(ids))
check_line()

-- Decide.
local function leave_line(id, record)
  local _, waits_in = place_in_line(record)
  if waits_in then
    leave_lane(id, lane_of(waits_in))
    return 1
  end
  local slot, costs, _, text = match(record, '^(%d+) (%S+) (%d+) (.*)$')
  local lane = lane_of(text)
  if slot ~= '0' then charge(lane, costs_of(lane, costs), -1) end
  unbook(id, record)
  if slot == '0' then return 0 end
  for i = 1, #lane do hurry(lane[i].name) end
  return 1
end

local gone = {} -- one may be named twice
for i = 1, #ids do
  left[i] = records[i] and not gone[ids[i]] and leave_line(ids[i], records[i]) or 0
  gone[ids[i]] = true
end

-- Write.
save_keys()
for i = 1, #ids do
  if records[i] then call('HDEL', jobs, ids[i]) end
end
return { format('%d', now), format('%d', save_line()), unpack(left) }
