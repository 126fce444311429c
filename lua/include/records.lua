-- How the line writes what it keeps; docs/redis-state.md describes each key.
local jobs, timers, claims, overdues = prefix .. 'jobs', prefix .. 'timers', prefix .. 'claims', prefix .. 'overdue'

-- A member of timers without a mark is a queue. With a mark before its ID, a job has a timer:
local BOOKING = '=' -- when its plan is reported, or it is late, its grace is over, or it is forgotten while overdue
local FORGET_AFTER = 600000000 -- us until an overdue job is forgotten
local CLAIM = '+' -- when a pull looks at its claim
local SWEEP = '~' -- alone, also in claims: hurry_all goes on
-- A field of claims without a mark is a scope key, and holds its claim. With a mark before a scope key:
local WALK = '!' -- the walk along the scope key's lanes that goes on there
-- Fields of the tags of a queue:
local VIRTUAL = '*' -- alone: the virtual time
local HAD_TURN = '>' -- and a flow, which has had its turn here and stands in another queue
local CLASSES = '#' -- and a flow: the tags of its classes

local function wait_of(queue) return prefix .. 'wait:' .. queue end
local function tags_of(queue) return prefix .. 'tags:' .. queue end
local function finish_of(queue) return prefix .. 'finish:' .. queue end
local function lanes_of(queue, class) return prefix .. 'lanes:' .. queue .. ':' .. class end
local function list_of_lane(lane) return prefix .. 'lane:' .. lane end

-- The record of a waiting job, with its costs if it has marks (waiting.lua), and the arrival and the lane of one; nil
-- for other records.
local function waiting_record(arrival, costs_text, marks, lane)
  return format('-%s %s%s', arrival, marks ~= '' and costs_text .. ' ' .. marks or '', lane)
end
local function parse_waiting(record) return match(record, '^%-(%d+) .-(%S+)$') end

-- Whether a record is that of a job which waits in a lane since its arrival.
local function waits_at(record, arrival, lane)
  local since, waits_in = parse_waiting(record or '')
  return since == arrival and waits_in == lane
end

-- The record of a booked job, and the slot, costs, arrival and lane of one; nil for other records. An overdue job has
-- the slot 0.
local function booking_record(slot, costs_text, arrival, marks, lane)
  return format('%d %s %d %s%s', slot, costs_text, arrival, marks, lane)
end
local function parse_booking(record) return match(record, '^(%d+) (%S+) (%d+) .-(%S+)$') end

-- The arrival, costs and ID of an element of a lane.
local function parse_element(text) return match(text, '^(%d+):([%d,]+):(.*)$') end

-- The costs of a text: "5", the same under every scope key of a list, or "5,1" in their order.
local function costs_of(names, text)
  local costs, one = {}, tonumber(text)
  if one then
    for i = 1, #names do costs[i] = one end
  else
    for cost in gmatch(text, '%d+') do costs[#costs + 1] = tonumber(cost) end
  end
  return costs
end

-- The slot and the job of a scope key's claim; nil if it has none.
local function claim_of(name) return match(call('HGET', claims, name) or '', '^(%d+) (.*)$') end

-- When the next pull is due, 0 if nothing waits.
local function next_look() return tonumber(call('ZRANGE', timers, 0, 0, 'WITHSCORES')[2] or 0) end

-- Notes keys of the line whose expiry the end of this call renews.
local renewed = {}
local function expire(...)
  for i = 1, select('#', ...) do renewed[select(i, ...)] = true end
end
return jobs, timers, claims, overdues, BOOKING, FORGET_AFTER, CLAIM, SWEEP, WALK, VIRTUAL, HAD_TURN, CLASSES,
  wait_of, tags_of, finish_of, lanes_of, list_of_lane,
  waiting_record, parse_waiting, waits_at, booking_record, parse_booking, parse_element, costs_of, claim_of,
  next_look, renewed, expire
