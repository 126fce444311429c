-- What one pull may still do, what it returns, and overdue jobs: before they came, the grace of their bookings was
-- over, or another job had taken over their slots.
-- A pull of a caller that delivers jobs returns each overdue job again for ten minutes, at growing intervals.
-- uses: records, waiting, key, queue, late, line
local TOLD_AGAIN = 1000000 -- us
local puller = {
  bookings = 0, looks = 0, -- how many are left
  most_looks = 0,
  drops = 2000, -- how many jobs that have left the line it may still take out of their lanes
  delivers = false, -- whether the caller delivers jobs
  booked = {}, overdue = {}, -- id, slot and lane of each job
  trouble = '', -- the last error of a scope key
  checks = 0, ended = 0, -- how often it has checked its steps, and at which check it ended; 0: it did not
}

local function add_job(list, id, slot, text)
  for _, value in ipairs({ id, slot, text }) do list[#list + 1] = value end
end

-- Reports a job that should ask again.
local function report_overdue(id, slot, costs_text, arrival, text, before)
  make_overdue(id, costs_text, arrival, text, before, puller.delivers and now + TOLD_AGAIN or now, '')
  if puller.delivers then add_job(puller.overdue, id, slot, text) end
end

-- Reports a job again that has still not come.
local function report_again(id)
  local slot, _, arrival, text = parse_booking(call('HGET', jobs, id) or '')
  local forgotten = call('ZSCORE', timers, BOOKING .. id)
  if slot ~= '0' or not forgotten then return write('ZREM', overdues, id) end
  add_job(puller.overdue, id, arrival, text)
  write('ZADD', overdues, format('%d', now + max(TOLD_AGAIN, now + FORGET_AFTER - tonumber(forgotten))), id)
end

-- Ends a booking whose grace is over, or that was made before the clock stepped back; the job keeps its position for a
-- while. Else notes that the job is late or, if its timer was set for an instant before its slot, reports a plan.
local function look_at_booking(id, timer)
  local record = call('HGET', jobs, id)
  local slot, costs_text, arrival, text = parse_booking(record or '')
  if not slot or slot == '0' then
    if slot then note(id, record) end
    write('ZREM', timers, BOOKING .. id)
    return write('ZREM', overdues, id)
  end
  local ends = slot + grace
  if now < ends and ends <= horizon + STEPPED_BACK + grace then
    if timer > tonumber(slot) then
      if #taken_over(record) < MOST_TAKEN then note_late(id, slot, text) end
      return write('ZADD', timers, format('%d', ends), BOOKING .. id)
    end
    add_job(puller.booked, id, slot, text)
    puller.bookings = puller.bookings - 1
    return write('ZADD', timers, format('%d', late_from(slot)), BOOKING .. id)
  end
  unbook(id, record)
  report_overdue(id, slot, costs_text, arrival, text, record)
  hurry_lane(text)
end
return puller, add_job, report_overdue, report_again, look_at_booking
