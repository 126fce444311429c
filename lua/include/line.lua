-- The line. A lane, "<flow>|<scope key>,<scope key>", is a list of "arrival:costs:id" and stands in one queue: that of a
-- scope key that has no room for its first job, or of its parked lanes, which has a '!' behind the name. Of a queue
--   wait:<queue>         zset: flows by start tag
--   lanes:<queue>:<flow> zset: the flow's lanes by the arrival of their first jobs
--   tags:<queue>         hash: finish tags of flows that do not stand there, '*' the virtual time, '>' and a flow: it has
--                        had its turn and stands elsewhere; '<' and a flow: its heavy job waits aside, and its work;
--                        '^' since when flows make way for a claim;
--                        as long as a flow stands there, is parked or has the claim
-- timers zset: queues by when they are looked at; '=' and a job: when its booking's grace is over; '+' and a lane: when
-- its claim is looked at. jobs hash: by ID '-' in line, else "slot costs arrival lane", slot 0: it did not come.
-- claims hash: by scope key the lane that has its claim; by '+' and a lane "at scope key=cost,..."; by '=' and a job the
-- lane that is parked or has a claim and whose first job it is. Flows of parked lanes stand by their tags too.
-- shares hash: of flows.
-- overdue zset: jobs that did not come, by when they are told of again.
local timers, jobs, claims, shares = prefix .. 'timers', prefix .. 'jobs', prefix .. 'claims', prefix .. 'shares'
local overdues = prefix .. 'overdue'
local firsts, started = {}, {}


local known_lanes = {}
local function lane_of(text)
  local lane = known_lanes[text]
  if not lane then
    lane = { text = text, flow = match(text, '^[^|]*'), list = prefix .. 'lane:' .. text }
    for name in gmatch(sub(text, #lane.flow + 2), '[^,]+') do lane[#lane + 1] = key_of(name) end
    known_lanes[text] = lane
  end
  return lane
end

-- "5", the same under every scope key, or "5,1" in their order
local function costs_of(lane, text)
  local costs, one = {}, tonumber(text)
  if one then
    for i = 1, #lane do costs[i] = one end
  else
    for cost in gmatch(text, '%d+') do costs[#costs + 1] = tonumber(cost) end
  end
  return costs
end

local function cost_under(lane, costs, name)
  for i = 1, #lane do
    if lane[i].name == name then return costs[i] end
  end
end

local function tag_text(tag) return format('%.17g', tag) end

-- The flow whose turn it is in a queue, and its tag; nil if none stands there.
local function first(queue)
  local known = firsts[queue]
  if not known then
    known = call('ZRANGE', prefix .. 'wait:' .. queue, 0, 0, 'WITHSCORES')
    firsts[queue] = known
  end
  return known[1], tonumber(known[2])
end

local function virtual_time(queue) return tonumber(call('HGET', prefix .. 'tags:' .. queue, '*') or 0) end

-- Where a flow stands in a queue, or would; and whether it does. One whose heavy job has waited aside comes back where it
-- was, by no more than that job before the virtual time.
local function start_tag(queue, flow)
  local tag = call('ZSCORE', prefix .. 'wait:' .. queue, flow)
  if tag then return tonumber(tag), true end
  local known = call('HMGET', prefix .. 'tags:' .. queue, '*', flow, '<' .. flow)
  return max((known[1] or 0) - (known[3] or 0), tonumber(known[2] or 0)), false, known[3]
end

local function due(name, at) write('ZADD', timers, 'LT', format('%d', at), name) end

-- Has a scope key looked at now, if lanes wait for it.
local function hurry(name)
  local at = format('%d', now)
  write('ZADD', timers, 'XX', 'LT', at, name, at, name .. '!')
  local lane = call('HGET', claims, name)
  if lane then write('ZADD', timers, 'XX', 'LT', at, '+' .. lane) end
end

local function expire(...)
  for i = 1, select('#', ...) do write('PEXPIRE', prefix .. select(i, ...), kept) end
end

-- Has a lane wait in a queue, which is looked at by then. A flow that comes anew moves the virtual time on by as little
-- as can be, so that flows with equal tags keep the order in which they came.
local function stand(queue, lane, arrival, look)
  local tag, stands = start_tag(queue, lane.flow)
  local tags, virtual = prefix .. 'tags:' .. queue, virtual_time(queue)
  write('ZADD', prefix .. 'lanes:' .. queue .. ':' .. lane.flow, arrival, lane.text)
  if not stands then
    write('ZADD', prefix .. 'wait:' .. queue, tag_text(tag), lane.flow)
    write('HDEL', tags, lane.flow, '<' .. lane.flow)
    write('HSET', tags, '*', tag_text(virtual + max(1e-6, math.abs(virtual) * 1e-15)))
    firsts[queue] = nil
  end
  due(queue, look)
  expire('lanes:' .. queue .. ':' .. lane.flow, 'wait:' .. queue, 'tags:' .. queue)
end

-- Forgets what the flows have had under a scope key where none waits any more, aside neither.
local function tidy(name)
  if call('EXISTS', prefix .. 'wait:' .. name, prefix .. 'wait:' .. name .. '!') == 0 and call('HEXISTS', claims, name) == 0 then
    write('DEL', prefix .. 'tags:' .. name)
  end
end

-- Ends that. What the flow has had is kept as long as others wait there.
local function leave(queue, lane)
  local flows = prefix .. 'lanes:' .. queue .. ':' .. lane.flow
  write('ZREM', flows, lane.text)
  if call('EXISTS', flows) == 1 then return end
  local wait, aside = prefix .. 'wait:' .. queue, sub(queue, -1) == '!'
  local tag = not aside and call('ZSCORE', wait, lane.flow)
  if tag then write('HSET', prefix .. 'tags:' .. queue, lane.flow, tag) end
  write('ZREM', wait, lane.flow)
  firsts[queue] = nil
  tidy(aside and sub(queue, 1, -2) or queue)
end

-- Has a parked lane have its turn under the scope key again.
local function unpark_lane(lane, name, arrival)
  stand(name, lane, arrival, now)
  leave(name .. '!', lane)
end

-- Has a lane looked at that is parked or has a claim, since its first job is another one than it was: it may be lighter.
local function look_anew(lane, arrival, was)
  for i = 1, #lane do
    local name = lane[i].name
    if call('ZSCORE', prefix .. 'lanes:' .. name .. '!:' .. lane.flow, lane.text) then unpark_lane(lane, name, arrival) end
  end
  write('ZADD', timers, 'XX', 'LT', format('%d', now), '+' .. lane.text)
  if was then write('HDEL', claims, '=' .. was) end
end

-- A limit that can never hold a job, other than one of 0, which is like a pause; and its scope key.
local function too_heavy(lane, costs)
  for i = 1, #lane do
    for j = 1, lane[i].mode == 'e' and #lane[i].limits or 0 do
      local limit = lane[i].limits[j]
      if limit.units > 0 and costs[i] > limit.units then return limit, lane[i] end
    end
  end
end

-- The scope key of a lane, but for one, under which flows stand whose turn is before this one's.
local function contended(lane, but)
  for i = 1, #lane do
    local name = lane[i].name
    if name ~= but and lane[i].mode == 'e' then
      local flow, tag = first(name)
      if flow and tag <= start_tag(name, lane.flow) and not call('HGET', prefix .. 'tags:' .. name, '>' .. lane.flow) then
        return name
      end
    end
  end
end

local function share_of(flow) return max(1, tonumber(call('HGET', shares, flow) or 1)) end

-- Moves a flow's tags on where flows stand by what it was given. What is given back does not bring it further
-- before the virtual time than four times of it: a job that found room at once moved no tag.
local function charge(lane, costs, sign, settled)
  for i = 1, #lane do
    local queue = lane[i].name
    local tags = prefix .. 'tags:' .. queue
    if call('EXISTS', tags) == 1 then
      lane.share = lane.share or share_of(lane.flow)
      if sign > 0 and not settled then write('HDEL', tags, '>' .. lane.flow) end
      local work = sign * costs[i] / lane.share
      local tag, stands, aside = start_tag(queue, lane.flow)
      if aside and work < 0 and -4 * work > tonumber(aside) then
        write('HSET', tags, '<' .. lane.flow, tag_text(-4 * work))
        tag = start_tag(queue, lane.flow)
      end
      local moved = tag + work
      if moved < tag then moved = min(tag, max(moved, virtual_time(queue) - 4 * (tag - moved))) end
      if stands then
        write('ZADD', prefix .. 'wait:' .. queue, tag_text(moved), lane.flow)
        firsts[queue] = nil
      else
        write('HSET', tags, lane.flow, tag_text(moved))
      end
    end
  end
end

-- When something is looked at that has room then: 300 s ahead at most, since another process may have other limits, or the
-- clock may have been set. What never has room is left alone.
local function soon(at)
  if at >= NEVER - lookahead then return at end
  return min(at, now + 300000000)
end

-- The scope key under which a job has to wait whose place at was moved last by key: of those that have no room for it by
-- themselves within the lookahead the one whose room comes last; and when to look, and whether it has none by itself.
local function blocked(lane, costs, at, key)
  local last, name, look = -1, nil, nil
  for i = 1, #lane do
    if lane[i].mode == 'e' then
      local own = earliest_of(lane[i], now, costs[i], true)
      if own > horizon and own > last then
        last, name, look = own, lane[i].name, (earliest_of(lane[i], now, 1, true))
      end
    end
  end
  if name then return name, soon(look - lookahead), true end
  return key.name, soon(at - lookahead), false
end

-- Books a job, and remembers until when it counts if it does not come.
local function promise(id, lane, costs_text, costs, at, arrival)
  for i = 1, #lane do
    if lane[i].mode ~= 'o' then book(lane[i], at, costs[i]) end
  end
  write('HSET', jobs, id, format('%d %s %d %s', at, costs_text, arrival, lane.text))
  write('ZADD', timers, format('%d', at + grace), '=' .. id)
end

-- Takes a booking back; record is that of the job.
local function unbook(id, record)
  local slot, costs, _, text = match(record, '^(%d+) (%S+) (%d+) (.*)$')
  if slot and slot ~= '0' then
    local lane = lane_of(text)
    costs = costs_of(lane, costs)
    for i = 1, #lane do
      if lane[i].mode ~= 'o' then book(lane[i], tonumber(slot), -costs[i]) end
    end
  end
  if slot == '0' then write('ZREM', overdues, id) end
  write('ZREM', timers, '=' .. id)
end

-- When the line is to be pulled, 0 if nothing waits.
local function next_look() return tonumber(call('ZRANGE', timers, 0, 0, 'WITHSCORES')[2] or 0) end

-- Finds foreign data where every change may look, before anything is written.
local function check_line()
  next_look()
  call('HGET', claims, '*')
end
