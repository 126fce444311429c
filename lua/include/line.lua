-- The line. A lane, "<class>|<scope key>,<scope key>", is a list of jobs. It stands in one queue: that of a scope key
-- that has no room for its first job.
-- uses: edges, records, waiting, key, placing, priority, queue, late
local known_lanes = {}
local function lane_of(text)
  local lane = known_lanes[text]
  if not lane then
    lane = { text = text, class = match(text, '^[^|]*'), list = list_of_lane(text), ends = NEVER }
    lane.flow, lane.mark = classes.parts(lane.class)
    for name in gmatch(sub(text, #lane.class + 2), '[^,]+') do
      local key = key_of(name)
      lane[#lane + 1], lane.ends = key, min(lane.ends, key.ends)
    end
    known_lanes[text] = lane
  end
  return lane
end

local function cost_of(lane, costs, name)
  for i = 1, #lane do
    if lane[i].name == name then return costs[i] end
  end
end

-- Makes the queue of a lane due after its first job has changed: the new first job may be lighter. arrival: of the new
-- first job, or of the one that has left while its entry stands there.
local function look_anew(lane, arrival)
  for i = 1, #lane do
    local name = lane[i].name
    local lanes = lanes_of(name, lane.class)
    if call('ZSCORE', lanes, lane.text) then
      write('ZADD', lanes, arrival, lane.text)
      due(name, now)
      expire(timers)
    end
  end
end

-- Makes the queue of a lane due if a job that leaves is its first. A pull drops entries of jobs that have left.
local function leave_lane(id, lane)
  local arrival, _, first_id = parse_element(call('LINDEX', lane.list, 0) or '')
  if first_id == id then look_anew(lane, arrival) end
end

-- A limit that a job never fits, and its scope key. A limit of 0 does not count: it acts like a pause.
local function never_fits(lane, costs)
  for i = 1, #lane do
    for j = 1, lane[i].mode == ENFORCE and #lane[i].limits or 0 do
      local limit = lane[i].limits[j]
      if limit.units > 0 and costs[i] > limit.units then return limit, lane[i] end
    end
  end
end

-- The scope key under which a job waits: among scope keys that by themselves have no room for it within the lookahead,
-- the one whose room comes last; else the scope key that moved the job's start, at, last. Also when to look, and
-- whether any of the scope keys has no room by itself.
local function blocked(lane, costs, at, key)
  local last, name, look = -1, nil, nil
  for i = 1, #lane do
    if lane[i].mode == ENFORCE then
      local own = earliest_of(lane[i], now, costs[i], true)
      if own > horizon and own > last then
        last, name, look = own, lane[i].name, (earliest_of(lane[i], now, 1, true))
      end
    end
  end
  if name then return name, soon(look - lookahead, lane.ends), true end
  return key.name, soon(at - lookahead, lane.ends), false
end

-- Books a job in every ledger, whatever the modes are: they may be others when the booking is taken back. Remembers
-- when it is late if the job does not come. was: the job's record so far, nil for none.
local function promise(id, lane, costs_text, costs, at, arrival, was)
  for i = 1, #lane do book(lane[i], at, costs[i]) end
  note(id, was, booking_record(at, costs_text, arrival, marks_of(was, has_lost(was), taken_over(was)), lane.text))
  write('ZADD', timers, format('%d', late_from(at)), BOOKING .. id)
end

-- The edges that a booking for an instant needs and Redis does not have, as an error; nil if it has them.
local function lacks_edges(lane, at)
  for i = 1, #lane do
    local hours = lane[i].limits.hours
    if hours and not knows(hours.edges, at) then return missing_edges(hours.edges.calendar, at) end
    for j = 1, #lane[i] do
      local edges = lane[i][j].edges
      if edges and not knows(edges, at) then return missing_edges(edges.calendar, at) end
    end
  end
  return nil
end

-- Takes the booking of a job back, and its claim. If Redis has lost edges that it needs, that is an error before
-- anything is written: by other edges the booking would be looked for in another period.
local function unbook(id, record)
  local slot, costs, _, text = parse_booking(record)
  if slot and slot ~= '0' then
    local lane = lane_of(text)
    local lacks = lacks_edges(lane, tonumber(slot))
    if lacks then error(lacks, 0) end
    costs = costs_of(lane, costs)
    for i = 1, #lane do book(lane[i], tonumber(slot), -costs[i]) end
    forget_late(id, text)
  end
  if slot == '0' then write('ZREM', overdues, id) end
  if write('ZREM', timers, BOOKING .. id) == 1 or not call('ZSCORE', timers, CLAIM .. id) then return end
  write('ZREM', timers, CLAIM .. id)
  for name in gmatch(match(text, '|(.*)$'), '[^,]+') do
    local _, claimant = claim_of(name)
    if claimant == id then write('HDEL', claims, name) end
  end
end

-- Takes a job out of line, and its booking back. Its flow gets back what it has paid for it. Returns whether the job
-- waited or was booked.
local function leave_line(id, record)
  local _, waits_in = parse_waiting(record)
  local slot, booked, _, booked_in = parse_booking(record)
  local lane = lane_of(waits_in or booked_in)
  local paid = slot ~= '0' and booked or has_lost(record) and match(record, '^%-%d+ (%S+)')
  if paid then charge(lane, costs_of(lane, paid), -1) end
  if waits_in then leave_lane(id, lane) else unbook(id, record) end
  if slot and slot ~= '0' then hurry_lane(booked_in) end
  note(id, record)
  return slot ~= '0'
end

-- Reads what a change to a job in line reads, so that foreign data, and edges that its booking needs and Redis has
-- lost, are found before anything is written.
local function check_record(record)
  local slot, _, _, booked_in = parse_booking(record)
  local _, waits_in = parse_waiting(record)
  local lane = lane_of(booked_in or waits_in)
  local lacks = slot and lacks_edges(lane, tonumber(slot))
  if lacks then error(lacks, 0) end
end

-- Reads the keys that any change may read, so that foreign data is found before anything is written.
local function check_line()
  next_look()
  call('HGET', claims, SWEEP)
end
return lane_of, cost_of, look_anew, leave_lane, never_fits, blocked, lacks_edges, promise, unbook, leave_line,
  check_record, check_line
