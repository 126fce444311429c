-- Queues: that of a scope key, and that of the lanes parked beside it, which has a '!' behind the name. Of a queue
--   wait:<queue>         zset: flows by start tag
--   lanes:<queue>:<flow> zset: the flow's lanes by the arrival of their first jobs. Those of a lower priority than 0 are in
--                        lanes:<queue>:<flow>#<priority>, and '#<priority>' is here before the others
--   tags:<queue>         hash: finish tags of flows that do not stand there, '*' the virtual time, '>' and a flow: it has
--                        had its turn and stands elsewhere; '<' and a flow: its heavy job waits aside, and its work;
--                        '^' since when flows make way for a claim; '#' and a flow that has had lanes of a lower priority
--                        here: the virtual time of its priorities, then their finish tags;
--                        as long as a flow stands there, is parked or has the claim
-- timers zset: queues by when they are looked at; '=' and a job: when its booking's grace is over, or a plan is to be told
-- of; '+' and a lane: when its claim is looked at.
-- claims hash: by scope key the lane that has its claim; by '+' and a lane "at scope key=cost,..."; by '=' and a job the
-- lane that is parked or has a claim and whose first job it is. Flows of parked lanes stand by their tags too.
-- shares hash: of flows.
-- include: classes
local timers, claims, shares = prefix .. 'timers', prefix .. 'claims', prefix .. 'shares'
local firsts = {}

-- The flow whose turn it is in a queue, and its tag; nil if none stands there.
local function first(queue)
  local known = firsts[queue] or call('ZRANGE', prefix .. 'wait:' .. queue, 0, 0, 'WITHSCORES')
  firsts[queue] = known
  return known[1], tonumber(known[2])
end

local virtual_times = {}
local function virtual_time(queue)
  virtual_times[queue] = virtual_times[queue] or tonumber(call('HGET', prefix .. 'tags:' .. queue, '*') or 0)
  return virtual_times[queue]
end

local function set_virtual_time(queue, tag)
  virtual_times[queue] = tag
  write('HSET', prefix .. 'tags:' .. queue, '*', tag_text(tag))
end

-- The start tag of a flow in a queue, and whether the flow stands there. A flow whose heavy job waited aside, parked or
-- with a claim, gets its old tag back, at most that job's work before the virtual time.
local function start_tag(queue, flow)
  local front = firsts[queue]
  local tag = front and front[1] == flow and front[2] or call('ZSCORE', prefix .. 'wait:' .. queue, flow)
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

-- Has a lane wait in a queue, which is looked at by then. A flow that comes anew moves the virtual time on by as little
-- as can be, so that flows with equal tags keep the order in which they came.
local function stand(queue, lane, arrival, look)
  local tag, stands = start_tag(queue, lane.flow)
  local tags, virtual = prefix .. 'tags:' .. queue, virtual_time(queue)
  classes.add(queue, lane, arrival)
  if lane.mark and call('HEXISTS', tags, '#' .. lane.flow) == 0 then write('HSET', tags, '#' .. lane.flow, '0') end
  if not stands then
    write('ZADD', prefix .. 'wait:' .. queue, tag_text(tag), lane.flow)
    write('HDEL', tags, lane.flow, '<' .. lane.flow)
    set_virtual_time(queue, virtual + max(1e-6, math.abs(virtual) * 1e-15))
    firsts[queue] = nil
  end
  due(queue, look)
  classes.expire(queue, lane)
  expire('wait:' .. queue, 'tags:' .. queue)
end

-- Deletes a scope key's tags when no flow stands under it, and none has a claim or a parked lane there.
local function tidy(name)
  if call('EXISTS', prefix .. 'wait:' .. name, prefix .. 'wait:' .. name .. '!') == 0 and call('HEXISTS', claims, name) == 0 then
    write('DEL', prefix .. 'tags:' .. name)
    virtual_times[name] = nil
  end
end

-- Removes a lane from a queue. The finish tag of its flow is kept as long as other flows wait there.
local function leave(queue, lane)
  if classes.remove(queue, lane) then return end
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

local unequal = call('EXISTS', shares) == 1
local function share_of(flow) return unequal and max(1, tonumber(call('HGET', shares, flow) or 1)) or 1 end
local function set_share(flow, share)
  if share ~= '1' then
    write('HSET', shares, flow, share)
    unequal = true
    expire('shares')
  elseif unequal then
    write('HDEL', shares, flow)
  end
end

-- Moves a flow's tags on by the units that are charged, under each scope key where flows stand.
local function charge(lane, costs, sign, settled)
  for i = 1, #lane do
    local queue = lane[i].name
    local tags = prefix .. 'tags:' .. queue
    local known = call('HMGET', tags, '*', '>' .. lane.flow, '#' .. lane.flow)
    if known[1] then
      if known[2] and sign > 0 and not settled then write('HDEL', tags, '>' .. lane.flow) end
      local work = sign * costs[i] / (lane.share or share_of(lane.flow))
      if known[3] then classes.charge(tags, lane, known[3], work, sign > 0 and not settled) end
      local tag, stands, aside = start_tag(queue, lane.flow)
      if aside and work < 0 and -4 * work > tonumber(aside) then
        write('HSET', tags, '<' .. lane.flow, tag_text(-4 * work))
        tag = start_tag(queue, lane.flow)
      end
      local moved = moved_by(tag, work, tonumber(known[1]))
      if stands then
        write('ZADD', prefix .. 'wait:' .. queue, tag_text(moved), lane.flow)
        firsts[queue] = nil
      else
        write('HSET', tags, lane.flow, tag_text(moved))
      end
    end
  end
end

-- When something is looked at that has room then: 300 s ahead at most, also what never has room, since another process may
-- have other limits, or the clock may have been set.
local function soon(at) return min(at, now + 300000000) end

-- When the line is to be pulled, 0 if nothing waits.
local function next_look() return tonumber(call('ZRANGE', timers, 0, 0, 'WITHSCORES')[2] or 0) end

-- Ends a call. Returns when the line is to be pulled.
local function save_line()
  for name in pairs(renewed) do write('PEXPIRE', prefix .. name, kept) end
  return next_look()
end
return timers, claims, shares, firsts, first, virtual_time, set_virtual_time, start_tag, due, hurry, stand, tidy, leave,
  unpark_lane, contended, share_of, set_share, charge, soon, next_look, save_line
