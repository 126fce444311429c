-- Decides what one job gets, as text of the reply: a start, a booking, an entry in its lane, or a refusal.
-- uses: kinds, grants, records, waiting, key, placing, priority, tags, queue, line, takeover
local in_line = { any = true } -- whether any job waits or is booked: reserve.lua sets it

local function limit_text(key, limit, units_text)
  return format(' %s/%s/%s/%d', key.name, units_text, limit.span, limit.precision)
end

-- What holds a job back: a limit of a scope key, or its pause. A ramp is the quota that it is now; before it begins,
-- that of its first step.
local function hold_of(key, holder)
  if not key then return '' end
  if holder == PAUSE then return format(' %s/p 0 0', key.name) end
  if key.known[holder] then return key.known[holder] end
  local used, booked = 0, 0
  if not holder.kind.opens then used, booked = uses(key, ledger_of(key, holder.span)) end
  local units = holder.ramp and max(units_at(key, holder, now), holder.ramp[1]) or holder.units
  key.known[holder] = limit_text(key, holder, format('%d', units)) .. format(' %d %d', used, booked)
  return key.known[holder]
end

-- Notes the places that a granted job occupies. Returns the shortest lease, 0 if it occupies none.
local function occupy(id, lane, costs, at)
  local places = {}
  for i = 1, #lane do
    local key = lane[i]
    for j = 1, key.mode ~= OFF and costs[i] > 0 and #key or 0 do
      local ledger = key[j]
      if ledger.kind.renewed then
        places[#places + 1] = { key.name, ledger, sub_window(ledger, time_of(key, at)), costs[i] }
      end
    end
  end
  return note_places(id, at, lane.class, at + 1000000, places, at)
end

local function grant(id, lane, costs, at, arrival)
  local start, key, holder = earliest(lane, costs, at, true, SHADOW)
  local shadow, uncharged = start > at and match(hold_of(key, holder), '^ %S+') .. format(' %d', start) or '', ''
  for i = 1, #lane do
    if lane[i].mode ~= OFF then spend(lane[i], at, costs[i]) else uncharged = uncharged .. ',' .. lane[i].name end
  end
  if uncharged ~= '' then uncharged = ' !' .. sub(uncharged, 2) end
  return format('1 %d %d %d', at, occupy(id, lane, costs, at), max(0, at - arrival)) .. uncharged .. shadow
end

local function waiting_answer(lane, at, key, holder, ahead)
  local flows = 0
  for i = 1, #lane do flows = max(flows, flows_in(lane[i].name)) end
  local held = hold_of(key, holder)
  return format('3 %d%s %d %d', min(at, lane.ends), held ~= '' and held or ' - 0 0',
    ahead or max(0, lane.jobs - 1), flows)
end

-- The rank in a lane of the first element that is not older than an instant, and the element; nil if there is none.
local function first_since(lane, arrival)
  local low, high = 0, lane.jobs
  while low < high do
    local middle = floor((low + high) / 2)
    local element = call('LINDEX', lane.list, middle)
    if tonumber((parse_element(element))) < arrival then low = middle + 1 else high = middle end
  end
  return low, call('LINDEX', lane.list, low)
end

-- Puts a job into its lane. No job there is older than the one before it, even if the clock has stepped back.
local function wait(job, lane, at, key, holder, other, back)
  local rank, later, answer
  if back then
    rank, later = first_since(lane, job.arrival)
  elseif lane.jobs > 0 then
    job.arrival = max(job.arrival, tonumber((parse_element(call('LINDEX', lane.list, -1)))))
  end
  local arrival = format('%d', job.arrival)
  local element = arrival .. ':' .. job.costs_text .. ':' .. job.id
  lane.jobs = lane.jobs + 1
  if lane.jobs > 1 then answer = waiting_answer(lane, at, key, holder) end -- finds foreign data before the first write
  set_share(lane.flow, job.share)
  if lane.jobs == 1 then
    local name, look = other, now
    if not other then name, look = blocked(lane, job.costs, at, key) end
    stand(name, lane, arrival, look)
  end
  if later then write('LINSERT', lane.list, 'BEFORE', later, element) else write('RPUSH', lane.list, element) end
  if lane.jobs == 1 then expire(lane.list) elseif rank == 0 then look_anew(lane, arrival) end
  local marks = marks_of(job.record, has_lost(job.record), taken_over(job.record))
  note(job.id, job.record, waiting_record(arrival, job.costs_text, marks, lane.text))
  expire(jobs, timers)
  in_line.any = true
  return answer or waiting_answer(lane, at, key, holder)
end

-- Refuses a job that would make a line longer than its bound; nil if all lines have room.
local function refuse(job, lane, at, key, holder)
  local name, length = full_in(lane, job.costs, job.bounds)
  if not name then return nil end
  local answer = waiting_answer(lane, at, key, holder, lane.jobs)
  return format('6%s %s %d %d', sub(answer, 2), name, length.jobs, length.units)
end

-- Gives a job a start, a booking, or an entry in its lane: at the front if the job comes back. A job with bounds
-- that would have to wait is refused if a line is full for it.
local function assign(job, lane, back)
  local at, key, holder = earliest(lane, job.costs, now, true, ENFORCE)
  local other, near
  if lane.jobs == 0 or back then
    other = in_line.any and not back and contended(lane)
    near = not other and at <= horizon
  end
  local too_late = min(at, lane.ends) > now + job.latest -- from lane.ends on other limits may allow it
  local starts = near and not too_late and at <= now + job.max_wait and not job.plan and may_start(lane, job.costs, at)
  if not starts and in_line.any and take_over(job, lane) then
    return grant(job.id, lane, job.costs, now, job.arrival)
  end
  if too_late then
    if job.record then leave_line(job.id, job.record) end
    return format('4 %d', at) .. hold_of(key, holder)
  end
  local refused = not starts and job.bounds and refuse(job, lane, at, key, holder)
  if refused then return refused end
  if not near then return wait(job, lane, at, key, holder, other, back) end
  set_share(lane.flow, job.share)
  if in_line.any and not has_lost(job.record) then charge(lane, job.costs, 1) end
  if starts then
    if job.record then note(job.id, job.record) end
    return grant(job.id, lane, job.costs, at, job.arrival)
  end
  local held = hold_of(key, holder)
  promise(job.id, lane, job.costs_text, job.costs, at, job.arrival, job.record)
  if job.plan and at > now then due(BOOKING .. job.id, now) end -- a pull reports it
  in_line.any = true
  expire(jobs, timers)
  return format('2 %d', at) .. held
end

-- How many jobs wait in a lane. It is asked before anything is written, since the lane may be foreign data.
local function count_jobs(lane)
  lane.jobs = lane.jobs or in_line.any and call('LLEN', lane.list) or 0
  return lane.jobs
end

-- Exchanges a booking for a start: real starts decide, not promised slots. A booking further ahead than the lookahead
-- allows was made before the clock stepped back. A caller that only plans a booked job gets the booking again: only
-- the caller that delivers the job gets its start.
local function redeem(job, lane, slot)
  if slot > horizon + STEPPED_BACK and not call('ZSCORE', timers, CLAIM .. job.id) then slot = now end
  local promised = job.plan or now < slot - job.max_wait
  local at, key, holder = earliest(lane, job.costs, promised and now or max(now, slot), false, ENFORCE)
  if promised then return format('2 %d', job.slot) .. hold_of(key, holder) end
  -- A job that is late by more than it may wait takes what is free now, and leaves other bookings their slots.
  local starts = at <= max(now, min(now, slot) + job.max_wait) and may_start(lane, job.costs, at)
  if not starts then count_jobs(lane) end
  unbook(job.id, job.record)
  local _, booked, arrival = parse_booking(job.record)
  if booked ~= job.costs_text then charge_difference(lane, costs_of(lane, booked), job.costs) end
  if starts then
    note(job.id, job.record)
    return grant(job.id, lane, job.costs, at, job.arrival)
  end
  local marks = marks_of(job.record, not has_lost(job.record), taken_over(job.record)) -- the next costs a turn
  local lost = waiting_record(arrival, job.costs_text, marks, lane.text)
  note(job.id, job.record, lost)
  job.record = lost
end

-- Whether a pull can find a lane: it cannot if keys of the line were lost.
local function reachable(lane)
  for i = 1, #lane do
    local queue = lane[i].name
    if call('ZSCORE', timers, queue) and call('ZSCORE', wait_of(queue), lane.flow)
      and call('ZSCORE', lanes_of(queue, lane.class), lane.text) then return true end
  end
  return false
end

-- Answers a waiting job that asks again. If it is older than the first job of its lane, the lane was lost and other
-- jobs have come since: the job goes to the front.
local function still_waiting(job, lane)
  if take_over(job, lane) then return grant(job.id, lane, job.costs, now, job.arrival) end
  local at, key, holder = earliest(lane, job.costs, now, true, ENFORCE)
  if not reachable(lane) then
    local name, look = lane[1].name, now
    if at > horizon then name, look = blocked(lane, job.costs, at, key) end
    stand(name, lane, format('%d', now), look)
  end
  if job.arrival < tonumber((parse_element(call('LINDEX', lane.list, 0)))) then
    return wait(job, lane, at, key, holder, nil, true)
  end
  expire(lane.list, jobs, timers) -- a lane may wait for longer than its keys live
  if is_counted(job.record) then expire(lengths) end
  for i = 1, #lane do classes.expire(lane[i].name, lane) end
  return waiting_answer(lane, at, key, holder)
end

local function decide(job, lane, record)
  local arrived, waits_in = parse_waiting(record or '')
  job.record = record
  if record then job.bounds = nil end -- it waits already
  if arrived and count_jobs(lane) > 0 and waits_in == lane.text and job.latest >= 0 and not never_fits(lane, job.costs)
  then
    job.arrival = tonumber(arrived)
    return still_waiting(job, lane)
  end
  local slot, _, arrival, text = parse_booking(record or '')
  job.slot = tonumber(slot)
  local back = text == lane.text and max(now, job.slot) <= now + job.latest
  if job.slot == 0 or not back then count_jobs(lane) end
  if job.slot == 0 then unbook(job.id, record) end
  if back then
    job.arrival = tonumber(arrival)
    local answer = job.slot > 0 and redeem(job, lane, job.slot)
    if answer then return answer end
    if job.slot > 0 then hurry_lane(text) end -- the room of its booking is free
  elseif record then
    leave_line(job.id, record)
    job.record = nil -- it may be granted now, or stand in another lane
  end
  local limit, key = never_fits(lane, job.costs)
  if limit then
    if job.record then leave_line(job.id, job.record) end
    return '5' .. limit_text(key, limit, limit.units_text) .. ' ' .. key.origin
  end
  return assign(job, lane, back)
end
return in_line, decide
