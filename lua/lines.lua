-- Purpose: tell who waits, in pages. It writes nothing. What comes or goes between pages may be told twice or not at all.
-- ARGV[4] kind; ARGV[5..] names as below, then from: where the page begins, 0 the first; count: how many it has at most
--   keys              queues by when they are looked at: queue, timer, flows, virtual time
--   queues queue...   of each: how many flows of it, then of each flow by start tag: flow, tag, how many of its lanes, and of each
--                     by arrival lane, arrival, jobs, costs of the first job; then how many finish tags, none behind the first page, and of each
--                     flow, tag. The page is of the flows of each queue, and of the lanes of each flow the first count
--   lanes queue flow  its lanes by arrival: lane, arrival, jobs, costs of the first job
--   claims            scope keys that have a claim, by a cursor of HSCAN: scope key, slot, job
--   jobs lane         its jobs in order: id, arrival, costs; those that have left are skipped
--   lists lane...     of each lane: how many jobs, then of each the same
--   job id lane       slot, arrival, jobs before it or -1, jobs of its lane, scope key or queue it stands under, timer
-- Reply: now, from where the next page begins or '', then as above
-- include: request
local timers, jobs, claims = prefix .. 'timers', prefix .. 'jobs', prefix .. 'claims'

-- Read.
local kind, from, count = ARGV[4], tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
call('MGET', prefix .. 'none', KEYS[1])
local reply = { format('%d', now), '' }
local function tell(...)
  for i = 1, select('#', ...) do reply[#reply + 1] = (select(i, ...)) end
end
local function page(size)
  if size == count then reply[2] = format('%d', from + count) end
end
local function integer(score) return format('%d', tonumber(score or 0)) end

local tells = {}

function tells.keys()
  -- Names follow each other in the order of their timers; those of bookings, claims and a mark are left out.
  local found = call('ZRANGE', timers, from, from + count - 1, 'WITHSCORES')
  page(#found / 2)
  for i = 1, #found, 2 do
    local name = found[i]
    if not match(name, '^[=+~]') then
      tell(name, integer(found[i + 1]), integer(call('ZCARD', prefix .. 'wait:' .. name)), call('HGET', prefix .. 'tags:' .. name, '*') or '0')
    end
  end
end

-- How many jobs are in a lane, and what the first one takes.
local function jobs_in(list) return integer(call('LLEN', list)), match(call('LINDEX', list, 0) or '', '^%d+:([%d,]+):') or '0' end

local function tell_lanes(found)
  for i = 1, #found, 2 do
    tell(found[i], integer(found[i + 1]), jobs_in(prefix .. 'lane:' .. found[i]))
  end
end

-- The page of a flow's lanes with the arrivals of their first jobs, those of priority 0 first.
local function lanes_page(queue, flow, from)
  local key, found = prefix .. 'lanes:' .. queue .. ':' .. flow, {}
  local marks, most = call('ZRANGEBYSCORE', key, '-inf', '(0'), 2 * count
  for i = 0, #marks do
    local lanes, before = i == 0 and key or key .. marks[i], i == 0 and #marks or 0
    local some = #found < most and call('ZRANGE', lanes, before + from, before + from + (most - #found) / 2 - 1, 'WITHSCORES') or {}
    for j = 1, #some do found[#found + 1] = some[j] end
    if from > 0 then from = max(0, from - (call('ZCARD', lanes) - before)) end
  end
  return found
end

local function tell_flow(queue, flow, tag)
  local found = lanes_page(queue, flow, 0)
  tell(flow, tag, integer(#found / 2))
  tell_lanes(found)
end

-- The tags of the flows of a page, and the finish tags on the first page, of which a queue has a limited number.
local function tell_tags(queue, flows)
  local finish = from == 0 and call('ZRANGE', prefix .. 'finish:' .. queue, 0, -1, 'WITHSCORES') or {}
  local fields, at = { '*' }, #reply + 1
  for _, list in ipairs({ flows, finish }) do
    for i = 1, #list, 2 do
      for _, kind in ipairs({ '>', '#' }) do fields[#fields + 1] = kind .. list[i] end
    end
  end
  tell('')
  for i = 1, #fields, 3000 do
    local values = call('HMGET', prefix .. 'tags:' .. queue, unpack(fields, i, min(#fields, i + 2999)))
    for j = 1, #values do
      if values[j] then tell(fields[i + j - 1], values[j]) end
    end
  end
  for i = 1, #finish do tell(finish[i]) end
  reply[at] = format('%d', (#reply - at) / 2)
end

function tells.queues()
  for i = 5, #ARGV - 2 do
    if #reply > 8 * count then break end
    local found = call('ZRANGE', prefix .. 'wait:' .. ARGV[i], from, from + count - 1, 'WITHSCORES')
    tell(integer(#found / 2))
    for j = 1, #found, 2 do tell_flow(ARGV[i], found[j], found[j + 1]) end
    tell_tags(ARGV[i], found)
  end
end

function tells.lanes()
  local found = lanes_page(ARGV[5], ARGV[6], from)
  page(#found / 2)
  tell_lanes(found)
end

function tells.claims()
  local cursor, found = unpack(call('HSCAN', claims, from, 'COUNT', count))
  if cursor ~= '0' then reply[2] = cursor end
  for i = 1, #found, 2 do
    local at, id = match(found[i + 1], '^(%d+) (.*)$')
    if at and not match(found[i], '^[!~]') then tell(found[i], at, id) end
  end
end

-- The page of a lane's jobs, without those that have left.
local function jobs_of(lane)
  local found, there, ids = call('LRANGE', prefix .. 'lane:' .. lane, from, from + count - 1), {}, {}
  for i = 1, #found do ids[i] = match(found[i], '^%d+:[%d,]+:(.*)$') end
  local records = #ids > 0 and call('HMGET', jobs, unpack(ids)) or {}
  for i = 1, #found do
    local arrival, costs = match(found[i], '^(%d+):([%d,]+):')
    if records[i] == '-' .. arrival .. ' ' .. lane then there[#there + 1] = { ids[i], arrival, costs } end
  end
  return there, #found
end

function tells.jobs()
  local there, size = jobs_of(ARGV[5])
  page(size)
  for i = 1, #there do tell(unpack(there[i])) end
end

function tells.lists()
  for i = 5, #ARGV - 2 do
    local there = jobs_of(ARGV[i])
    tell(integer(#there))
    for j = 1, #there do tell(unpack(there[j])) end
  end
end

-- A place is looked for among the first count jobs of the lane.
local function place_of(id, list)
  local elements = call('LRANGE', list, 0, count - 1)
  for i = 1, #elements do
    if match(elements[i], '^%d+:[%d,]+:(.*)$') == id then return i - 1, elements[i] end
  end
  return -1, nil
end

function tells.job()
  local record, lane = call('HGET', jobs, ARGV[5]) or '', ARGV[6]
  local slot, arrival = match(record, '^(%d+) %S+ (%d+) ')
  local queue, timer, place, waits = '', nil, 0, sub(record, 1, 1) == '-'
  if waits then
    local element
    place, element = place_of(ARGV[5], prefix .. 'lane:' .. lane)
    arrival = element and match(element, '^%d+')
    for name in gmatch(lane, '[|,]([^,]+)') do
      if call('ZSCORE', prefix .. 'lanes:' .. name .. ':' .. match(lane, '^[^|]*'), lane) then queue = name end
    end
    timer = call('ZSCORE', timers, queue)
  end
  tell(slot or '0', arrival or '0', integer(place), integer(waits and call('LLEN', prefix .. 'lane:' .. lane) or 0), queue, integer(timer))
end

tells[kind]()
return reply
