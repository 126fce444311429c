-- Purpose: take jobs out of the line that will not come, and take their bookings back.
-- ARGV[4..] IDs
-- Reply: now, next
--   of each job: 1 if it waited or was booked, else 0
-- uses: request, scopes, records, key, queue, line

-- Read.
read_control()
local ids = { unpack(ARGV, 4) }
local records = call('HMGET', jobs, unpack(ids))
check_line()
for i = 1, #ids do
  if records[i] then check_record(records[i]) end
end

-- Decide.
local left, seen = {}, {} -- an ID may be named twice
for i = 1, #ids do
  left[i] = records[i] and not seen[ids[i]] and leave_line(ids[i], records[i]) and 1 or 0
  seen[ids[i]] = true
end

-- Write.
save_keys()
return { format('%d', now), format('%d', save_line()), unpack(left) }
