-- Purpose: tell who waits, in pages. It writes nothing. What comes or goes between pages may be told twice or not at all.
-- ARGV[4] kind, then names as below, then from: where the page begins, 0 the first; count: how many it has at most
--   keys              queues by when they are looked at: queue, timer, flows, virtual time; parked lanes have one with '!'
--   flows queue       its flows by start tag: flow, tag
--   tags queue        finish tags of flows that stand elsewhere, all of them: flow, tag
--   lanes queue flow  its lanes by arrival: lane, arrival, jobs
--   claims            lanes that have a claim, all of them: lane, place, scope keys with their units, jobs
--   jobs lane         its jobs in order: id, arrival, costs; those that have left are skipped
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
local function page(found, size)
  if size == count then reply[2] = format('%d', from + count) end
  return found
end
local function integer(score) return format('%d', tonumber(score or 0)) end

local tells = {}

function tells.keys()
  -- Names follow each other in the order of their timers; those of bookings and claims are left out.
  local found = page(call('ZRANGE', timers, from, from + count - 1, 'WITHSCORES'))
  if #found == 2 * count then reply[2] = format('%d', from + count) end
  for i = 1, #found, 2 do
    local name = found[i]
    if not match(name, '^[=+]') then
      tell(name, integer(found[i + 1]), integer(call('ZCARD', prefix .. 'wait:' .. name)), call('HGET', prefix .. 'tags:' .. name, '*') or '0')
    end
  end
end

function tells.flows()
  local found = call('ZRANGE', prefix .. 'wait:' .. ARGV[5], from, from + count - 1, 'WITHSCORES')
  page(found, #found / 2)
  for i = 1, #found, 2 do
    tell(found[i], found[i + 1])
  end
end

function tells.tags()
  local found = call('HGETALL', prefix .. 'tags:' .. ARGV[5])
  for i = 1, #found, 2 do tell(found[i], found[i + 1]) end
end

function tells.lanes()
  local found = call('ZRANGE', prefix .. 'lanes:' .. ARGV[5] .. ':' .. ARGV[6], from, from + count - 1, 'WITHSCORES')
  page(found, #found / 2)
  for i = 1, #found, 2 do
    tell(found[i], integer(found[i + 1]), integer(call('LLEN', prefix .. 'lane:' .. found[i])))
  end
end

function tells.claims()
  local found = call('HGETALL', claims)
  for i = 1, #found, 2 do
    local at, taken = match(found[i + 1], '^(%d+) (.*)$')
    if sub(found[i], 1, 1) == '+' and at then
      local lane = sub(found[i], 2)
      tell(lane, at, taken, integer(call('LLEN', prefix .. 'lane:' .. lane)))
    end
  end
end

function tells.jobs()
  local found = call('LRANGE', prefix .. 'lane:' .. ARGV[5], from, from + count - 1)
  page(found, #found)
  local ids = {}
  for i = 1, #found do ids[i] = match(found[i], '^%d+:[%d,]+:(.*)$') end
  local records = #ids > 0 and call('HMGET', jobs, unpack(ids)) or {}
  for i = 1, #found do
    local arrival, costs = match(found[i], '^(%d+):([%d,]+):')
    if records[i] == '-' then tell(ids[i], arrival, costs) end
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
  local queue, timer, place = '', nil, 0
  if record == '-' then
    local element
    place, element = place_of(ARGV[5], prefix .. 'lane:' .. lane)
    arrival = element and match(element, '^%d+')
    for name in gmatch(lane, '[|,]([^,]+)') do
      for _, q in ipairs({ name, name .. '!' }) do
        if call('ZSCORE', prefix .. 'lanes:' .. q .. ':' .. match(lane, '^[^|]*'), lane) then
          queue, timer = q, call('ZSCORE', timers, q)
        end
      end
    end
    if queue == '' then timer = call('ZSCORE', timers, '+' .. lane) end
  end
  tell(slot or '0', arrival or '0', integer(place), integer(record == '-' and call('LLEN', prefix .. 'lane:' .. lane) or 0), queue, integer(timer))
end

tells[kind]()
return reply
