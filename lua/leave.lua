-- Purpose: take jobs out of the line that will not come, and take their bookings back.
-- ARGV[4..] IDs
-- Reply: now, next
--   of each job: 1 if it waited or was booked, else 0
-- uses: request, scopes, records, waiting, key, queue, line

-- Read.
read_control()
local ids = { unpack(ARGV, 4) }
local records = call('HMGET', jobs, unpack(ids))
check_line()
for i = 1, #ids do
  if records[i] then check_record(records[i]) end
end

-- Decide.
local function leave_line(id, record)
  local _, waits_in = parse_waiting(record)
  if waits_in then
    leave_lane(id, lane_of(waits_in))
    return 1
  end
  local slot, costs_text, _, text = parse_booking(record)
  local lane = lane_of(text)
  if slot ~= '0' then charge(lane, costs_of(lane, costs_text), -1) end
  unbook(id, record)
  if slot == '0' then return 0 end
  hurry_lane(text)
  return 1
end

local left, seen = {}, {} -- an ID may be named twice
for i = 1, #ids do
  left[i] = records[i] and not seen[ids[i]] and leave_line(ids[i], records[i]) or 0
  if records[i] and not seen[ids[i]] then note(ids[i], records[i]) end
  seen[ids[i]] = true
end

-- Write.
save_keys()
return { format('%d', now), format('%d', save_line()), unpack(left) }
