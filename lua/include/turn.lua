-- Whose turn it is: the first job of the first lane of the first flow of a queue.
local drops = 2000 -- how many jobs that have left one pull takes out of their lanes
local taken = {} -- jobs that this pull has taken out of a lane: one that has asked under other keys stands in two

-- Drops jobs from a lane that have left, and returns its first: arrival, costs, id. Else nil, and whether there are more
-- to drop than one pull may. Those behind it are read with it: two at first, more for who comes again.
local function first_job(lane)
  local known = lane.ahead and lane.ahead[lane.out + 1]
  if known and not taken[known.id] then return known, false end
  while true do
    local elements = call('LRANGE', lane.list, 0, lane.gone and 63 or lane.ahead and 7 or 1)
    if #elements == 0 then
      end_lane(lane)
      return nil, false
    end
    local ids, arrivals, costs = {}, {}, {}
    for i = 1, #elements do arrivals[i], costs[i], ids[i] = match(elements[i], '^(%d+):([%d,]+):(.*)$') end
    local records = call('HMGET', jobs, unpack(ids))
    local function waits(i) return records[i] == in_line(arrivals[i], lane) end
    local gone = 0
    while gone < #elements and gone < drops and not waits(gone + 1) do gone = gone + 1 end
    if gone > 0 then write('LTRIM', lane.list, gone, -1) end
    drops = drops - gone
    if gone < #elements then
      if not waits(gone + 1) then
        looks = 0
        return nil, true
      end
      lane.ahead, lane.out = {}, 0
      for i = gone + 1, #elements do
        if not waits(i) then break end
        lane.ahead[i - gone] = { arrival = arrivals[i], costs_text = costs[i], costs = costs_of(lane, costs[i]), id = ids[i] }
      end
      return lane.ahead[1], false
    end
    lane.gone = true
  end
end

local function take_out(lane, job)
  write('LPOP', lane.list)
  lane.out = lane.out + 1
  taken[job.id] = true
end

-- Takes the first job of a lane out that weighs more than a limit allows: it holds up those behind it, and is to ask
-- again, to hear that. Returns whether it did so, and the first job then.
local function throw_out(lane, job)
  if not too_heavy(lane, job.costs) then return false, job end
  take_out(lane, job)
  to_ask(job.id, format('%d', now), job.costs_text, job.arrival, lane.text)
  return true, first_job(lane)
end

-- Passes over a flow, once in a pull, since one of its scope keys cannot be read.
local passed_over, trouble = {}, {}
local function pass_over(queue, flow, problem)
  local wait = prefix .. 'wait:' .. queue
  local last = call('ZRANGE', wait, -1, -1, 'WITHSCORES')
  if passed_over[flow] or last[1] == flow then error(problem) end
  passed_over[flow], trouble[1] = true, problem.err or tostring(problem)
  write('ZADD', wait, tag_text(last[2] + 1e-6), flow)
  firsts[queue] = nil
end

-- Has a pull end that has taken its steps, after one look at least.
local checks = 0
local function end_if_tired()
  checks = checks + 1
  if budget.left <= 0 and looks < most_looks then
    if ended == 0 then ended = checks end
    looks = 0
  end
end

-- The first job of a lane that is not too heavy for its limits; whether another one was thrown out, and whether there are
-- more to drop than one pull may.
local function ready_job(lane)
  local job, more = first_job(lane)
  if not job then return nil, false, more end
  local thrown
  thrown, job, more = throw_out(lane, job)
  return job, thrown, more
end

-- The lane whose turn it is in a queue, its first job and its flow's tag.
local function head(queue)
  end_if_tired()
  while looks > 0 do
    local flow, tag = first(queue)
    if not flow then return nil end
    looks = looks - 1
    local text = classes.first(queue, flow)
    if not text then -- its lanes have expired
      write('ZREM', prefix .. 'wait:' .. queue, flow)
      firsts[queue] = nil
    else
      local fine, lane = pcall(lane_of, text)
      local job, thrown, more
      if fine then job, thrown, more = ready_job(lane) else pass_over(queue, flow, lane) end
      if more then return nil end
      if fine and not job then
        leave(queue, lane)
      elseif fine and not thrown then
        return lane, job, tag
      elseif fine then
        write('ZADD', classes.lanes(queue, lane.class), job.arrival, text)
      end
    end
  end
end

-- The lane of a rank among those that are parked beside a scope key, and its first job; false if the lane cannot be read;
-- nil if there is none or, as the third, if it could not be looked for.
local function parked(name, rank)
  end_if_tired()
  while looks > 0 do
    local text = call('ZRANGE', prefix .. 'wait:' .. name .. '!', rank, rank)[1]
    if not text then return nil, nil, false end
    looks = looks - 1
    local fine, lane = pcall(lane_of, text)
    if not fine then
      local problem = lane
      trouble[1] = type(problem) == 'table' and problem.err or tostring(problem)
      return false
    end
    local job, thrown, more = ready_job(lane)
    if more then break end
    if not job then
      leave_aside(name, lane)
    elseif thrown then
      look_anew(lane, job.arrival)
    else
      return lane, job
    end
  end
  return nil, nil, true
end

-- Books the first job of a lane and takes it out. Returns the next.
local function book_first(lane, job, at)
  take_out(lane, job)
  promise(job.id, lane, job.costs_text, job.costs, at, tonumber(job.arrival))
  tell(booked, job.id, format('%d', at), lane.text)
  bookings = bookings - 1
  charge(lane, job.costs, 1)
  return first_job(lane)
end

local function move(from, to, lane, job, look)
  stand(to, lane, job.arrival, look)
  leave(from, lane)
end
return taken, ready_job, trouble, end_if_tired, head, parked, book_first, move
