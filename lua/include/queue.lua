-- The queue of a scope key:
--   wait:<queue>         zset: flows by start tag
--   lanes:<queue>:<flow> zset: the flow's lanes by the arrival of their first jobs. Those of a lower priority than 0 are in
--                        lanes:<queue>:<flow>#<priority>, and '#<priority>' is here before the others
-- Beside it wait:<queue>! is a zset of the lanes that are parked, by the start tags that their flows had.
-- timers zset: queues by when they are looked at; '=' and a job: when its booking's grace is over, or a plan is to be told
-- of; '+' and a lane: when its claim is looked at; '~': timers are gone through.
-- claims hash: by scope key the lane that has its claim; by '+' and a lane "at scope key=cost,..."; by '!' and a scope key
-- how many of its parked lanes the walk has come by that goes on there, and when those are looked at again; '~' is of
-- hurry_all.
-- include: tags
local timers, claims = prefix .. 'timers', prefix .. 'claims'
local firsts = {}

-- The flow whose turn it is in a queue, and its tag; nil if none stands there.
local function first(queue)
  local known = firsts[queue] or call('ZRANGE', prefix .. 'wait:' .. queue, 0, 0, 'WITHSCORES')
  firsts[queue] = known
  return known[1], tonumber(known[2])
end

-- The start tag of a flow in a queue, and whether the flow stands there. A flow whose heavy job waited aside, parked or
-- with a claim, gets its old tag back, at most that job's work before the virtual time.
local function start_tag(queue, flow)
  local front = firsts[queue]
  local tag = front and front[1] == flow and front[2] or call('ZSCORE', prefix .. 'wait:' .. queue, flow)
  if tag then return tonumber(tag), true end
  local known = call('HMGET', prefix .. 'tags:' .. queue, '*', '<' .. flow)
  local finish = call('ZSCORE', prefix .. 'finish:' .. queue, flow)
  return max((known[1] or 0) - (known[2] or 0), tonumber(finish or 0)), false, known[2]
end

local function due(name, at) write('ZADD', timers, 'LT', format('%d', at), name) end

-- Has a scope key looked at now, if lanes wait for it.
local function hurry(name)
  local at = format('%d', now)
  write('ZADD', timers, 'XX', 'LT', at, name, at, name .. '!')
  local known = call('HMGET', claims, name, '!' .. name)
  local lane, from = known[1], match(known[2] or '', '^%d+')
  if lane then write('ZADD', timers, 'XX', 'LT', at, '+' .. lane) end
  if from then write('HSET', claims, '!' .. name, from .. ' 0') end
end

-- Has scope keys looked at now whose names begin with a text, and all claims; or, for '=', whatever has a timer. It goes
-- through some 200 timers, from a cursor on. Returns now if there are more: the timer '~' has the next pull go on.
local function hurry_all(cursor, text)
  local last = match(call('HGET', claims, '~') or '', '^%d+ (.*)$')
  if last and last ~= text then cursor, text = '0', '=' end
  local found = call('ZSCAN', timers, cursor, 'COUNT', 200)
  for i = 1, #found[2], 2 do
    local kind = sub(found[2][i], 1, 1)
    local is_one = text == '=' or kind == '+' or kind ~= '=' and sub(found[2][i], 1, #text) == text
    if is_one then write('ZADD', timers, 'XX', 'LT', format('%d', now), found[2][i]) end
  end
  local more = found[1] ~= '0'
  if more then write('HSET', claims, '~', found[1] .. ' ' .. text) else write('HDEL', claims, '~') end
  if more then due('~', now) end
  return more and now
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
    write('ZREM', prefix .. 'finish:' .. queue, lane.flow)
    write('HDEL', tags, '<' .. lane.flow)
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
    write('DEL', prefix .. 'tags:' .. name, prefix .. 'finish:' .. name)
    set_virtual_time(name, nil)
  end
end

-- Removes a lane from a queue. The finish tag of its flow is kept as long as other flows wait there.
local function leave(queue, lane)
  if classes.remove(queue, lane) then return end
  local wait = prefix .. 'wait:' .. queue
  local tag = call('ZSCORE', wait, lane.flow)
  if tag then set_finish_tag(queue, lane.flow, tonumber(tag)) end
  write('ZREM', wait, lane.flow)
  firsts[queue] = nil
  tidy(queue)
end

-- Takes a lane out of those that are parked beside a scope key.
local function leave_aside(name, lane)
  write('ZREM', prefix .. 'wait:' .. name .. '!', lane.text)
  if call('EXISTS', prefix .. 'wait:' .. name .. '!') == 0 then write('HDEL', claims, '!' .. name) end
  tidy(name)
end

-- Has a parked lane have its turn under the scope key again.
local function unpark_lane(lane, name, arrival)
  stand(name, lane, arrival, now)
  leave_aside(name, lane)
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
        set_finish_tag(queue, lane.flow, moved)
      end
    end
  end
end

-- When something is looked at that has room then: 300 s ahead at most, also what never has room, since another process may
-- have other limits, or the clock may have been set; and not after what is set at run time ends.
local function soon(at, ends) return min(at, ends, now + 300000000) end

-- When the line is to be pulled, 0 if nothing waits.
local function next_look() return tonumber(call('ZRANGE', timers, 0, 0, 'WITHSCORES')[2] or 0) end

-- Ends a call. Returns when the line is to be pulled.
local function save_line()
  for name in pairs(renewed) do write('PEXPIRE', prefix .. name, kept) end
  return next_look()
end
return timers, claims, firsts, first, start_tag, due, hurry, hurry_all, stand, tidy, leave, leave_aside, unpark_lane,
  contended, charge, soon, next_look, save_line
