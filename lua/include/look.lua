-- What a pull looks at: a scope key, a claim, or a booking whose job has not come.
-- uses: records, key, placing, priority, tags, queue, line, overdue, turn, claim
local MOST_WALKED = 64 -- how many lanes without room one look passes
local AGAIN_AFTER = 60000000 -- us until a pull looks at these lanes again, at the latest

-- Whether a scope key lacks room for a job only for its weight.
local function is_heavy(key, cost)
  return cost > 1 and earliest_of(key, now, 1, true) <= horizon
end

-- Whether a scope key has no room within the lookahead for so many units, or for the most that its limits allow.
local function is_full(key, units)
  if key.mode ~= ENFORCE then return false end
  for i = 1, #key.limits do
    if key.limits[i].units >= 0 then units = min(units, served(key, key.limits[i], horizon)) end
  end
  return earliest_of(key, now, units, true) > horizon
end

-- When to look again at a scope key without room: when it has room for one unit. If it has that room now, it keeps the
-- room for a quarter of the lookahead, for lanes that had their turn here and moved under another scope key.
local function again(key)
  local one = earliest_of(key, now, 1, true)
  if one <= horizon then return now + floor(lookahead / 4) end
  return soon(max(one - lookahead, now + 1), key.ends)
end

-- Makes the next job of a lane its first, or takes the lane out of its queue.
local function go_on(name, lane, following, more)
  if following then
    write('ZADD', lanes_of(name, lane.class), following.arrival, lane.text)
    classes.expire(name, lane)
    expire(lane.list)
  elseif not more then
    leave(name, lane)
  end
end

-- Moves a walk past a lane. The lane's flow saves up no turns: its tag is at most this job before the virtual time.
local function pass(name, walk, lane, tag, cost)
  local least = virtual_time(name) - cost / share_of(lane.flow)
  if tag < least then
    write('ZADD', wait_of(name), tag_text(least), lane.flow)
    firsts[name] = nil
  end
  walk.lane, walk.passed = walk.lane + 1, walk.passed + 1
end

-- Deals with a first job that has no room: its lane moves under another scope key that has no room for it; else the job
-- claims its start or, if other claims keep it from that, the walk passes it.
local function make_room(name, walk, lane, job, tag, own, at, mover)
  local cost = cost_of(lane, job.costs, name)
  local other, _, lacks = blocked(lane, job.costs, at, mover)
  if other ~= name and lacks then return move(name, other, lane, job, now) end
  puller.looks = puller.looks - LOOKS_OF_A_CLAIM + 1
  local frees = claimed(lane, name, at, job.costs)
  if not frees and at ~= NEVER then
    serve(name, tag)
    return go_on(name, lane, claim(lane, job, name, at))
  end
  if own > horizon then walk.least = cost else own = at end
  walk.again = min(walk.again, (frees and min(own, frees) or own) - lookahead, lane.ends)
  pass(name, walk, lane, tag, cost)
end

-- Walks along the lanes under a scope key in the order of their turns and books the first jobs that have room, until
-- the scope key has none. A lane that lacks room or has to wait for its turn under another scope key moves there. A
-- job that weighs at least as much as one without room has no room either. Returns when to look again, nil if no flow
-- stands here.
local function look(name)
  forget_finished(name)
  local walk = walk_of(name) or { flow = '', rank = 0, lane = 0, again = now + AGAIN_AFTER }
  walk.passed, walk.least = 0, math.huge
  local moved = 0 -- units of jobs that had their turn here and wait for it elsewhere
  local ended
  while puller.bookings > 0 and walk.passed < MOST_WALKED do
    local lane, job, tag = next_lane(name, walk)
    if not lane then ended = job break end
    local key, cost = key_of(name), cost_of(lane, job.costs, name)
    if cost >= walk.least then
      pass(name, walk, lane, tag, cost)
    else
      local own = key.mode == ENFORCE and earliest_of(key, now, cost, true) or now
      if own > horizon and not is_heavy(key, cost) or moved > 0 and is_full(key, cost + moved) then
        return again(key)
      end
      local at, mover = earliest(lane, job.costs, now, true, ENFORCE)
      local other = at <= horizon and contended(lane, name)
      if at > horizon then
        make_room(name, walk, lane, job, tag, own, at, mover)
      elseif other then
        write('HSET', tags_of(name), HAD_TURN .. lane.flow, '1')
        move(name, other, lane, job, now)
        moved = moved + cost
      else
        serve(name, tag)
        add_job(puller.booked, job.id, format('%d', at), lane.text)
        go_on(name, lane, book_first(lane, job, at))
      end
    end
  end
  if not first(name) then return nil end
  if ended then return max(walk.again, now) end
  save_walk(name, walk)
  return now
end

-- Looks at one member of timers, which was due at an instant.
local function attempt(member, timer)
  local mark, id = sub(member, 1, 1), sub(member, 2)
  if mark == BOOKING then return look_at_booking(id, timer) end
  if mark == CLAIM then return reclaim(id) end
  local again_at
  if mark == SWEEP then
    again_at = sweep()
  else
    expire(wait_of(member), tags_of(member), finish_of(member))
    again_at = look(member)
  end
  if again_at then write('ZADD', timers, format('%d', again_at), member) else write('ZREM', timers, member) end
end
return attempt
