-- Purpose: read what waits, in pages. It writes nothing. An entry that moves between pages may be read twice or never.
-- ARGV[4] kind of the entries
-- ARGV[5..] names, as below, then
--   from: where the page begins, 0 for the first
--   count: how many entries the page has at most
-- Reply: now
--   where the next page begins, '' for none
--   keys, without names. Of each queue, by timer: name, timer us, flows, virtual time
--   queues queue... Of each: the number of flows on the page, and of each, by start tag: flow, tag, number of lanes,
--     and its first lanes as below; then the number of tags, and of each: name, tag; then on the first page of each
--     finish tag: flow, tag
--   lanes queue flow. Of each lane, by arrival: lane, arrival us, jobs, costs of the first job
--   claims, without names; from is a cursor. Of each: scope key, slot us, job
--   jobs lane. Of each job, in order: id, arrival us, costs
--   lists lane... Of each: the number of jobs, then as for jobs
--   job id lane. Slot us, arrival us, jobs before it or -1, jobs in its lane, its queue, timer us
-- uses: request, scopes, records

-- Read.
local kind, from, count = ARGV[4], tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
read_control()
local reply = { format('%d', now), '' }
local function put(...)
  for i = 1, select('#', ...) do reply[#reply + 1] = (select(i, ...)) end
end
local function page(size)
  if size == count then reply[2] = format('%d', from + count) end
end
local function integer(score) return format('%d', tonumber(score or 0)) end

local read = {} -- by kind

function read.keys()
  -- A page covers that many timers, and leaves out the timers of bookings, claims and sweeps.
  local found = call('ZRANGE', timers, from, from + count - 1, 'WITHSCORES')
  page(#found / 2)
  for i = 1, #found, 2 do
    local name = found[i]
    local mark = sub(name, 1, 1)
    if mark ~= BOOKING and mark ~= CLAIM and mark ~= SWEEP then
      local virtual = call('HGET', tags_of(name), VIRTUAL) or '0'
      put(name, integer(found[i + 1]), integer(call('ZCARD', wait_of(name))), virtual)
    end
  end
end

-- How many jobs are in a lane, and the costs of the first.
local function jobs_in(list)
  local _, costs = parse_element(call('LINDEX', list, 0) or '')
  return integer(call('LLEN', list)), costs or '0'
end

local function put_lanes(found)
  for i = 1, #found, 2 do
    put(found[i], integer(found[i + 1]), jobs_in(list_of_lane(found[i])))
  end
end

-- A page of a flow's lanes with the arrivals of their first jobs, lanes of priority 0 first.
local function lanes_page(queue, flow, from)
  local key, found = lanes_of(queue, flow), {}
  local marks, most = call('ZRANGEBYSCORE', key, '-inf', '(0'), 2 * count
  for i = 0, #marks do
    local lanes, before = i == 0 and key or key .. marks[i], i == 0 and #marks or 0
    local last = before + from + (most - #found) / 2 - 1
    local some = #found < most and call('ZRANGE', lanes, before + from, last, 'WITHSCORES') or {}
    for j = 1, #some do found[#found + 1] = some[j] end
    if from > 0 then from = max(0, from - (call('ZCARD', lanes) - before)) end
  end
  return found
end

local function put_flow(queue, flow, tag)
  local found = lanes_page(queue, flow, 0)
  put(flow, tag, integer(#found / 2))
  put_lanes(found)
end

-- Puts the tags of a page's flows; on the first page also all finish tags.
local function put_tags(queue, flows)
  local finish = from == 0 and call('ZRANGE', finish_of(queue), 0, -1, 'WITHSCORES') or {}
  local fields, at = { VIRTUAL }, #reply + 1
  for _, list in ipairs({ flows, finish }) do
    for i = 1, #list, 2 do
      for _, mark in ipairs({ HAD_TURN, CLASSES }) do fields[#fields + 1] = mark .. list[i] end
    end
  end
  put('')
  for i = 1, #fields, 3000 do
    local values = call('HMGET', tags_of(queue), unpack(fields, i, min(#fields, i + 2999)))
    for j = 1, #values do
      if values[j] then put(fields[i + j - 1], values[j]) end
    end
  end
  for i = 1, #finish do put(finish[i]) end
  reply[at] = format('%d', (#reply - at) / 2)
end

function read.queues()
  for i = 5, #ARGV - 2 do
    if #reply > 8 * count then break end
    local found = call('ZRANGE', wait_of(ARGV[i]), from, from + count - 1, 'WITHSCORES')
    put(integer(#found / 2))
    for j = 1, #found, 2 do put_flow(ARGV[i], found[j], found[j + 1]) end
    put_tags(ARGV[i], found)
  end
end

function read.lanes()
  local found = lanes_page(ARGV[5], ARGV[6], from)
  page(#found / 2)
  put_lanes(found)
end

function read.claims()
  local cursor, found = unpack(call('HSCAN', claims, from, 'COUNT', count))
  if cursor ~= '0' then reply[2] = cursor end
  for i = 1, #found, 2 do
    local slot, id = match(found[i + 1], '^(%d+) (.*)$')
    local mark = sub(found[i], 1, 1)
    if slot and mark ~= WALK and mark ~= SWEEP then put(found[i], slot, id) end
  end
end

-- A page of a lane's jobs without jobs that have left, and how many elements it has.
local function jobs_of(lane)
  local found, there, ids = call('LRANGE', list_of_lane(lane), from, from + count - 1), {}, {}
  local arrivals, costs = {}, {}
  for i = 1, #found do arrivals[i], costs[i], ids[i] = parse_element(found[i]) end
  local records = #ids > 0 and call('HMGET', jobs, unpack(ids)) or {}
  for i = 1, #found do
    if waits_at(records[i], arrivals[i], lane) then
      there[#there + 1] = { ids[i], arrivals[i], costs[i] }
    end
  end
  return there, #found
end

function read.jobs()
  local there, size = jobs_of(ARGV[5])
  page(size)
  for i = 1, #there do put(unpack(there[i])) end
end

function read.lists()
  for i = 5, #ARGV - 2 do
    local there = jobs_of(ARGV[i])
    put(integer(#there))
    for j = 1, #there do put(unpack(there[j])) end
  end
end

-- How many jobs of a lane are before a job, and when that job arrived; -1 if it is not among the first jobs, count of
-- them.
local function find_in_lane(id, list)
  local elements = call('LRANGE', list, 0, count - 1)
  for i = 1, #elements do
    local arrival, _, known = parse_element(elements[i])
    if known == id then return i - 1, arrival end
  end
  return -1, nil
end

function read.job()
  local record, lane = call('HGET', jobs, ARGV[5]) or '', ARGV[6]
  local slot, _, arrival = parse_booking(record)
  local queue, timer, before, waits = '', nil, 0, parse_waiting(record)
  if waits then
    before, arrival = find_in_lane(ARGV[5], list_of_lane(lane))
    for name in gmatch(lane, '[|,]([^,]+)') do
      if call('ZSCORE', lanes_of(name, match(lane, '^[^|]*')), lane) then queue = name end
    end
    timer = call('ZSCORE', timers, queue)
  end
  local size = waits and call('LLEN', list_of_lane(lane))
  put(slot or '0', arrival or '0', integer(before), integer(size or 0), queue, integer(timer))
end

read[kind]()
return reply
