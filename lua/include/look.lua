-- What is looked at in a pull: a scope key, its parked lanes, a claim, or a booking that nobody came for.
local WALKED = 64 -- parked lanes of a scope key, that one look comes by

-- Whether a scope key has room, but not for a job as heavy as this one.
local function is_heavy(key, cost)
  return cost > 1 and earliest_of(key, now, 1, true) <= horizon
end

-- Whether a scope key has no room for so many units, or, if no limit allows as many, for the most that they allow.
local function is_full(key, units)
  if key.mode ~= 'e' then return false end
  for i = 1, #key.limits do
    if key.limits[i].units >= 0 then units = min(units, served(key, key.limits[i])) end
  end
  return earliest_of(key, now, units, true) > horizon
end

-- When a scope key without room is looked at again: when one unit has. If it has, but lanes that had their turn here
-- are to have it, they are given a while.
local function again(key)
  local one = earliest_of(key, now, 1, true)
  if one <= horizon then return now + floor(lookahead / 4) end
  return soon(max(one - lookahead, now + 1), key.ends)
end

-- Books first jobs under a scope key until it has no room. A lane that lacks room under another scope key, or whose turn
-- it is not there, is moved under that one. Returns when to look again, nil if no flow stands here any more.
local function look(name)
  forget_finished(name)
  local moved = 0 -- units of jobs that had their turn here and wait for it elsewhere
  while bookings > 0 do
    local lane, job, tag = head(name)
    if not lane then return first(name) and now or nil end
    local key, cost = key_of(name), cost_under(lane, job.costs, name)
    local own = key.mode == 'e' and earliest_of(key, now, cost, true) or now
    if own > horizon and not is_heavy(key, cost) or moved > 0 and is_full(key, cost + moved) then return again(key) end
    local at, mover = earliest(lane, job.costs, now, true, 'e')
    if at > horizon then
      local other, _, lacks = blocked(lane, job.costs, at, mover)
      if other == name or not lacks then
        claim_or_park(name, lane, job, other, at)
      else
        move(name, other, lane, job, now)
      end
    else
      local other = contended(lane, name)
      if other then
        write('HSET', prefix .. 'tags:' .. name, '>' .. lane.flow, '1')
        move(name, other, lane, job, now)
        moved = moved + cost
      else
        local makes_way_until = makes_way(name, lane.flow, tag)
        if makes_way_until > now then return makes_way_until end
        if tag > virtual_time(name) then set_virtual_time(name, tag) end
        local following, more = book_first(lane, job, at)
        if following then
          write('ZADD', classes.lanes(name, lane.class), following.arrival, lane.text)
          classes.expire(name, lane)
          expire('lane:' .. lane.text)
        elseif not more then
          leave(name, lane)
        end
      end
    end
  end
  return now
end

-- Whether the first job of a parked lane has room, or has to wait under another scope key that has none; and when the one
-- beside which it is parked has room for it. What is not lighter than a job without room there, least, has none either.
local function has_room(lane, job, key, cost, least)
  if cost >= least then return false, nil end
  local own = key.mode == 'e' and earliest_of(key, now, cost, true) or now
  if own > horizon then return false, own end
  local at, mover = earliest(lane, job.costs, now, true, 'e')
  return at <= horizon or select(3, blocked(lane, job.costs, at, mover)), own
end

-- Walks along the parked lanes from a rank on, and has those have their turn again whose first jobs have room; and the first
-- one, which may have the claim, if nobody has it: free. when is when those before are looked at again. Returns when to look
-- again, and where the walk goes on then, nil if it has come to its end.
local function walk(name, rank, when, free)
  local key, moved, least = key_of(name), 0, NEVER
  for _ = 1, WALKED do
    local lane, job, more = parked(name, rank)
    if lane == nil then return when, more and rank or nil end
    local cost = lane and cost_under(lane, job.costs, name)
    local room, own
    if lane then room, own = has_room(lane, job, key, cost, least) end
    if room and moved > 0 and is_full(key, moved + cost) then
      return now + floor(lookahead / 4), nil
    elseif room then
      unpark_lane(lane, name, job.arrival)
      moved = moved + cost
    elseif free and own and own ~= NEVER then
      unpark_lane(lane, name, job.arrival)
      return now + lookahead, nil
    else
      if own then when = min(when, parked_until(lane, job, own)) end
      if own and own > horizon then least = cost end
      rank = rank + 1
    end
  end
  return when, rank
end

-- A walk that has not come by all parked lanes goes on with the next pull, but for one from the front for the claim.
local function unpark(name)
  local known, free = call('HGET', claims, '!' .. name), call('HEXISTS', claims, name) == 0
  local from, before = match(not free and known or '', '^(%d+) (%d+)$')
  local when, left = walk(name, tonumber(from or 0), tonumber(before) or now + PARKED_FOR, free)
  if call('EXISTS', prefix .. 'wait:' .. name .. '!') == 0 then return nil end
  if left then
    write('HSET', claims, '!' .. name, format('%d %d', left, when))
    expire('claims')
    return now
  end
  if known then write('HDEL', claims, '!' .. name) end
  return max(when, now)
end

local function attempt(member)
  local kind = sub(member, 1, 1)
  if kind == '=' then return end_booking(sub(member, 2)) end
  if kind == '+' then return look_at_claim(sub(member, 2)) end
  local when
  expire('wait:' .. member, 'tags:' .. member, 'finish:' .. member)
  if kind == '~' then when = hurry_all(match(call('HGET', claims, '~') or '0 =', '^(%d+) (.*)$'))
  elseif sub(member, -1) == '!' then when = unpark(sub(member, 1, -2))
  else when = look(member) end
  if when then write('ZADD', timers, format('%d', when), member) else write('ZREM', timers, member) end
end
return attempt
