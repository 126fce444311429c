-- The room of late jobs. A booked job that does not come to its slot would leave its room unused: the next job of its
-- lane that asks takes the room over.
-- uses: entries, records, waiting, placing, queue, late, line
local gave_way = {} -- by ID: late jobs that this call has made overdue, and so have another record now

-- Gives a job the room and the turn of a late job of its lane that weighs as much or more, for a start now. Returns
-- false if there is none, starts leave no room, or now is after its deadline. The late job is overdue from now on.
local function take_over(job, lane)
  local id, record, slot, costs_text, arrival = first_late(lane.text)
  if not id or job.plan or job.latest < 0 then return false end
  local costs = costs_of(lane, costs_text)
  for i = 1, #lane do
    if job.costs[i] > costs[i] then return false end
  end
  if earliest(lane, job.costs, now, false, ENFORCE) > now or not may_start(lane, job.costs, now) then return false end
  budget.left = budget.left - 60
  unbook(id, record)
  gave_way[id] = true
  make_overdue(id, costs_text, arrival, lane.text, record, slot + grace, format('%s^', taken_over(record)))
  charge_difference(lane, costs, job.costs)
  if has_lost(job.record) then -- its flow has paid for another slot too
    charge(lane, costs_of(lane, match(job.record, '%S+ (%S+)')), -1)
  end
  if parse_waiting(job.record or '') then leave_lane(job.id, lane) end
  if job.record then note(job.id, job.record) end
  return true
end
return gave_way, take_over
