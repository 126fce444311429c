-- Whose turn it is: the first job of the first lane of the first flow of a queue.
-- uses: entries, records, waiting, tags, priority, queue, line, overdue
local taken = {} -- jobs that this pull took out of a lane: one that asked under other scope keys stands in two lanes

-- Drops jobs that have left from a lane, and returns its first job; else nil, and whether there are more to drop than
-- one pull may drop. It reads two jobs at first, and more with the next read.
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
    for i = 1, #elements do arrivals[i], costs[i], ids[i] = parse_element(elements[i]) end
    local records = call('HMGET', jobs, unpack(ids))
    local function waits(i) return waits_at(records[i], arrivals[i], lane.text) end
    local gone = 0
    while gone < #elements and gone < puller.drops and not waits(gone + 1) do gone = gone + 1 end
    if gone > 0 then write('LTRIM', lane.list, gone, -1) end
    puller.drops = puller.drops - gone
    if gone < #elements then
      if not waits(gone + 1) then
        puller.looks = 0
        return nil, true
      end
      lane.ahead, lane.out = {}, 0
      for i = gone + 1, #elements do
        if not waits(i) then break end
        local job = { id = ids[i], arrival = arrivals[i], costs_text = costs[i], record = records[i] }
        job.costs = costs_of(lane, costs[i])
        lane.ahead[i - gone] = job
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

-- Notes an error; the pull returns its text.
local function note_trouble(problem)
  puller.trouble = type(problem) == 'table' and problem.err or tostring(problem)
end

-- Ends a pull that has used up its steps, after one look at least.
local function end_if_tired()
  puller.checks = puller.checks + 1
  if budget.left <= 0 and puller.looks < puller.most_looks then
    if puller.ended == 0 then puller.ended = puller.checks end
    puller.looks = 0
  end
end

-- Throws out the first job of a lane if it never fits, since it holds up the jobs behind it: it asks again, and the
-- answer says so. Returns the first job after that, whether one was thrown out, and whether there are more to drop than
-- one pull may drop.
local function throw_out(lane)
  local job, more = first_job(lane)
  if not job or not never_fits(lane, job.costs) then return job, false, more end
  take_out(lane, job)
  report_overdue(job.id, format('%d', now), job.costs_text, job.arrival, lane.text, job.record)
  job, more = first_job(lane)
  return job, true, more
end

-- A walk along a queue passes flows in the order of their tags, and the lanes of each flow. It is at lane number `lane`
-- of `flow`, after `rank` flows; `again` is when a pull looks again at the lanes that it has passed. Returns the lane
-- that the walk has reached, its first job, and its flow's tag. Returns nil, and whether the walk has reached its end:
-- if it has not, the pull has no looks left.
local function next_lane(queue, walk)
  end_if_tired()
  while puller.looks > 0 do
    local flow, tag
    if walk.rank == 0 then
      flow, tag = first(queue)
    else
      flow, tag = unpack(call('ZRANGE', wait_of(queue), walk.rank, walk.rank, 'WITHSCORES'))
    end
    if not flow then return nil, true end
    if flow ~= walk.flow then walk.flow, walk.lane = flow, 0 end
    local text = classes.at(queue, flow, walk.lane)
    if not text and walk.lane == 0 then -- its lanes have expired
      write('ZREM', wait_of(queue), flow)
      firsts[queue] = nil
    elseif not text then
      walk.rank = walk.rank + 1
    else
      puller.looks, budget.left = puller.looks - 1, budget.left - 60
      local fine, lane = pcall(lane_of, text)
      local job, thrown, more
      if fine then
        job, thrown, more = throw_out(lane)
      else
        note_trouble(lane)
        walk.lane, walk.again = walk.lane + 1, min(walk.again, now + 1000000)
      end
      if more then return nil, false end
      if fine and not job then
        leave(queue, lane)
      elseif fine and not thrown then
        return lane, job, tonumber(tag)
      elseif fine then
        write('ZADD', lanes_of(queue, lane.class), job.arrival, text)
      end
    end
  end
  return nil, false
end

-- Books the first job of a lane and takes it out. Returns the next job.
local function book_first(lane, job, at)
  take_out(lane, job)
  promise(job.id, lane, job.costs_text, job.costs, at, tonumber(job.arrival), job.record)
  puller.bookings = puller.bookings - 1
  charge(lane, job.costs, has_lost(job.record) and 0 or 1)
  return first_job(lane)
end

local function move(from, to, lane, job, look)
  stand(to, lane, job.arrival, look)
  leave(from, lane)
end
return note_trouble, end_if_tired, next_lane, book_first, move
