-- What is looked at in a pull: a scope key, its parked lanes, a claim, or a booking that nobody came for.
local MOST_WITHOUT_ROOM = 4

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
  return soon(max(one - lookahead, now + 1))
end

-- Books first jobs under a scope key until it has no room. A lane that lacks room under another scope key, or whose turn
-- it is not there, is moved under that one. Returns when to look again, nil if no flow stands here any more.
local function look(name)
  local moved = 0 -- units of jobs that had their turn here and wait for it elsewhere
  while bookings > 0 do
    local lane, job, tag = head(name, 0)
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

-- Has parked lanes have their turn again: those whose first job has room, and the first one, which may have the claim, if
-- nobody has it. Returns when to look again.
local function unpark(name)
  local queue, key, moved, without, when = name .. '!', key_of(name), 0, 0, now + PARKED_FOR
  while without < MOST_WITHOUT_ROOM do
    local lane, job = head(queue, without)
    if not lane then
      if call('ZCARD', prefix .. 'wait:' .. queue) > without then when = now end -- there is more than could be looked at
      break
    end
    local cost = cost_under(lane, job.costs, name)
    local own = key.mode == 'e' and earliest_of(key, now, cost, true) or now
    local room = own <= horizon
    if room then
      local at, mover = earliest(lane, job.costs, now, true, 'e')
      room = at <= horizon or select(3, blocked(lane, job.costs, at, mover)) -- it has to wait under that one
    end
    local offered = not room and own ~= NEVER and call('HEXISTS', claims, name) == 0
    if room and moved > 0 and is_full(key, moved + cost) then
      when = now + floor(lookahead / 4)
      break
    elseif room or offered then
      unpark_lane(lane, name, job.arrival)
      write('HDEL', claims, '=' .. job.id)
      moved = moved + cost
      if offered then
        when = now + lookahead
        break
      end
    else
      when = min(when, parked_until(lane, job, own))
      without = without + 1
    end
  end
  return first(queue) and when or nil
end

local function attempt(member)
  local kind = sub(member, 1, 1)
  if kind == '=' then return end_booking(sub(member, 2)) end
  if kind == '+' then return look_at_claim(sub(member, 2)) end
  local when
  expire('wait:' .. member, 'tags:' .. member)
  if sub(member, -1) == '!' then when = unpark(sub(member, 1, -2)) else when = look(member) end
  if when then
    write('ZADD', timers, format('%d', when), member)
  else
    write('ZREM', timers, member)
  end
end
return attempt
