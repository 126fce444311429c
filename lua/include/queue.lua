-- The queue of a scope key: flows by start tag, and the lanes of each flow by the arrival of their first jobs.
-- uses: records, waiting, priority, tags
local firsts = {} -- of queues, as they were read: the first flow and its tag
local sizes = {} -- of queues, as they were read: how many flows stand there

-- The flow whose turn it is in a queue, and its tag; nil if no flow stands there.
local function first(queue)
  firsts[queue] = firsts[queue] or call('ZRANGE', wait_of(queue), 0, 0, 'WITHSCORES')
  return firsts[queue][1], tonumber(firsts[queue][2])
end

local function flows_in(queue)
  sizes[queue] = sizes[queue] or call('ZCARD', wait_of(queue))
  return sizes[queue]
end

-- The start tag of a flow in a queue, and whether the flow stands there.
local function start_tag(queue, flow)
  local front = firsts[queue]
  local tag = front and front[1] == flow and front[2] or call('ZSCORE', wait_of(queue), flow)
  if tag then return tonumber(tag), true end
  return max(virtual_time(queue), tonumber(call('ZSCORE', finish_of(queue), flow) or 0)), false
end

-- Takes the walk along a queue from Redis, for this look to go on with; nil if there is none.
local function walk_of(queue)
  local rank, lane, when, flow = match(call('HGET', claims, WALK .. queue) or '', '^(%d+) (%d+) (%d+) (.*)$')
  if not rank then return nil end
  write('HDEL', claims, WALK .. queue)
  return { rank = tonumber(rank), lane = tonumber(lane), again = tonumber(when), flow = flow }
end

local function save_walk(queue, walk)
  write('HSET', claims, WALK .. queue, format('%d %d %d ', walk.rank, walk.lane, walk.again) .. walk.flow)
  expire(claims)
end

-- Lets a walk look again, by an instant at the latest, at the lanes that it has passed.
local function walk_again(queue, at)
  local from, when, rest = match(call('HGET', claims, WALK .. queue) or '', '^(%d+ %d+ )(%d+)( .*)$')
  if from and tonumber(when) > at then write('HSET', claims, WALK .. queue, from .. format('%d', at) .. rest) end
end

-- Sets a timer, unless it is due earlier.
local function due(name, at)
  write('ZADD', timers, 'LT', format('%d', at), name)
  walk_again(name, at)
end

-- Makes a scope key due now if lanes stand under it, and also its claim.
local function hurry(name)
  local at, _, id = format('%d', now), claim_of(name)
  write('ZADD', timers, 'XX', 'LT', at, name, at, CLAIM .. (id or ''))
  walk_again(name, now)
end

-- The same for the scope keys of a lane.
local function hurry_lane(text)
  for name in gmatch(match(text, '|(.*)$'), '[^,]+') do hurry(name) end
end

-- Reads some 200 timers from a cursor on, and makes due now the timers of claims, and of scope keys whose names begin
-- with a text. EVERY_TIMER stands for all timers; an overdue job is then reported again, and not forgotten. Returns now
-- if timers are left, with which SWEEP goes on.
local EVERY_TIMER = '='
local function hurry_from(cursor, text)
  local found = call('ZSCAN', timers, cursor, 'COUNT', 200)
  for i = 1, #found[2], 2 do
    local name = found[2][i]
    local mark = sub(name, 1, 1)
    if text == EVERY_TIMER and mark == BOOKING and call('ZSCORE', overdues, sub(name, 2)) then
      write('ZADD', timers, 'LT', format('%d', now + FORGET_AFTER), name)
      write('ZADD', overdues, 'LT', format('%d', now), sub(name, 2))
    elseif text == EVERY_TIMER or mark == CLAIM or mark ~= BOOKING and sub(name, 1, #text) == text then
      write('ZADD', timers, 'XX', 'LT', format('%d', now), name)
    end
  end
  local more = found[1] ~= '0'
  if more then write('HSET', claims, SWEEP, found[1] .. ' ' .. text) else write('HDEL', claims, SWEEP) end
  if more then
    due(SWEEP, now)
    expire(claims)
  end
  return more and now
end

-- Goes on with a sweep.
local function sweep()
  local cursor, text = claim_of(SWEEP)
  return hurry_from(cursor or '0', text or EVERY_TIMER)
end

-- Begins a sweep. If a sweep for another text has not ended, the new one goes through all timers.
local function hurry_all(text)
  local _, last = claim_of(SWEEP)
  hurry_from('0', last and last ~= text and EVERY_TIMER or text)
end

-- Puts a lane into a queue, which is due by the instant look. A new flow moves the virtual time on by the smallest
-- step: flows with equal tags keep the order in which they came.
local function stand(queue, lane, arrival, look)
  local tag, stands = start_tag(queue, lane.flow)
  local tags, virtual = tags_of(queue), virtual_time(queue)
  classes.add(queue, lane, arrival)
  if lane.mark and call('HEXISTS', tags, CLASSES .. lane.flow) == 0 then
    write('HSET', tags, CLASSES .. lane.flow, '0')
  end
  if not stands then
    write('ZADD', wait_of(queue), tag_text(tag), lane.flow)
    write('ZREM', finish_of(queue), lane.flow)
    set_virtual_time(queue, virtual + max(1e-6, math.abs(virtual) * 1e-15))
    firsts[queue], sizes[queue] = nil, nil
  end
  due(queue, look)
  classes.expire(queue, lane)
  expire(wait_of(queue), tags_of(queue))
end

-- Deletes the tags of a queue in which no flow stands.
local function tidy(name)
  if call('EXISTS', wait_of(name)) == 0 then
    write('DEL', tags_of(name), finish_of(name))
    set_virtual_time(name, nil)
  end
end

-- Takes a lane out of a queue. The queue keeps the flow's finish tag while other flows stand there.
local function leave(queue, lane)
  if classes.remove(queue, lane) then return end
  local wait = wait_of(queue)
  local tag = call('ZSCORE', wait, lane.flow)
  if tag then set_finish_tag(queue, lane.flow, tonumber(tag)) end
  write('ZREM', wait, lane.flow)
  firsts[queue], sizes[queue] = nil, nil
  tidy(queue)
end

-- A scope key of a lane, but for one, under which flows stand whose turn is before this flow's; nil if there is none. A
-- new job may go before the flows under a scope key that is not due yet.
local function contended(lane, but)
  for i = 1, #lane do
    local name = lane[i].name
    if name ~= but and lane[i].mode == ENFORCE then
      local flow, tag = first(name)
      if flow and tag <= start_tag(name, lane.flow) and (but or tonumber(call('ZSCORE', timers, name) or 0) <= now)
        and not call('HGET', tags_of(name), HAD_TURN .. lane.flow) then
        return name
      end
    end
  end
end

-- Moves a flow's tags by charged units under each scope key where flows stand. sign: -1 if the job leaves, 0 if its
-- flow has paid before; settled: the charge is for no start. It reads all tags before it writes any.
local function charge(lane, costs, sign, settled)
  local charged = {}
  for i = 1, #lane do
    local front = firsts[lane[i].name]
    local known = front and not front[1] and front
      or call('HMGET', tags_of(lane[i].name), VIRTUAL, HAD_TURN .. lane.flow, CLASSES .. lane.flow)
    if known[1] then
      known.virtual = virtual_time(lane[i].name, known[1])
      known.queue, known.work = lane[i].name, sign * costs[i] / (lane.share or share_of(lane.flow))
      known.tag, known.stands = start_tag(known.queue, lane.flow)
      charged[#charged + 1] = known
    end
  end
  for _, known in ipairs(charged) do
    local queue, tags = known.queue, tags_of(known.queue)
    if known[2] and sign >= 0 and not settled then write('HDEL', tags, HAD_TURN .. lane.flow) end
    if known[3] then classes.charge(tags, lane, known[3], known.work, sign >= 0 and not settled, sign < 0) end
    local moved = moved_by(known.tag, known.work, known.virtual, sign < 0)
    if known.stands then
      write('ZADD', wait_of(queue), tag_text(moved), lane.flow)
      firsts[queue] = nil
    else
      set_finish_tag(queue, lane.flow, moved)
    end
  end
end

-- Charges a flow, which has paid for other costs, for the difference. A job that costs less leaves room.
local function charge_difference(lane, paid, costs)
  local deltas = {}
  for i = 1, #lane do
    deltas[i] = costs[i] - paid[i]
    if deltas[i] < 0 then hurry(lane[i].name) end
  end
  charge(lane, deltas, 1, true)
end

-- When to look at a scope key that has room at an instant: within 300 s, since another process may have other limits,
-- or the clock may have been set; and not after a setting ends.
local function soon(at, ends) return min(at, ends, now + 300000000) end

-- Ends a call. Returns when the next pull is due.
local function save_line()
  save_virtual_times()
  save_lengths()
  for key in pairs(renewed) do write('PEXPIRE', key, kept) end
  return next_look()
end
return firsts, first, flows_in, due, hurry, hurry_lane, EVERY_TIMER, hurry_all, sweep, walk_of, save_walk, stand, leave,
  contended, charge, charge_difference, soon, save_line
