-- Booked jobs that have not come: late ones, a moment after their slots, and overdue ones, whose bookings have ended.
-- uses: records, waiting
local LATE = prefix .. 'late:' -- and a lane: the jobs that were noted as late, by slot
local LATE_AFTER = 100000 -- us after its slot; a job comes before its slot as a rule
local MOST_TAKEN = 3 -- how many of a job's slots in a row are taken over; the next is kept, so that the job starts
local LATE_AT_ONCE = 10 -- how many late jobs one look reads: those before the first may have come, or have no record

-- When a pull notes a booked job as late, or as overdue if its grace is over first.
local function late_from(slot) return slot + min(LATE_AFTER, grace) end

local function note_late(id, slot, lane)
  write('ZADD', LATE .. lane, slot, id)
  expire(LATE .. lane)
end

local function forget_late(id, lane) write('ZREM', LATE .. lane, id) end

-- The late job of a lane with the earliest slot, its record, and the slot, the costs and the arrival there; nil if none
-- is late.
local function first_late(lane)
  local found = call('ZRANGE', LATE .. lane, 0, LATE_AT_ONCE - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local id, noted = found[i], tonumber(found[i + 1])
    if late_from(noted) > now then return nil end
    local record = call('HGET', jobs, id) or ''
    local slot, costs_text, arrival, booked_in = parse_booking(record)
    if tonumber(slot) == noted and booked_in == lane then return id, record, noted, costs_text, arrival end
    forget_late(id, lane) -- it has come, or its record was lost
  end
end

-- Ends the booking of a job that has not come. It keeps its position for a while, and its flow pays anew for its next
-- booking. again: when a pull reports it, again or for the first time; taken: marks of slots taken over.
local function make_overdue(id, costs_text, arrival, lane, before, again, taken)
  note(id, before, booking_record(0, costs_text, arrival, marks_of(before, false, taken), lane))
  write('ZADD', timers, format('%d', now + FORGET_AFTER), BOOKING .. id)
  write('ZADD', overdues, format('%d', again), id)
  expire(jobs, timers, overdues)
end
return MOST_TAKEN, late_from, note_late, forget_late, first_late, make_overdue
