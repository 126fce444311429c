-- Claims: units that are booked for a job that has no room within the lookahead, so that lighter ones behind it do not
-- take all that comes; and lanes that are parked, since another one has the claim.
local PARKED_FOR, CLAIMED_FOR, NEAR_CLAIM, MAKES_WAY_FOR = 60000000, 5000000, 10000000, 5000000
local LOOKS_OF_A_CLAIM = 8 -- for how many looks one at a claim counts: it costs as much

-- Books units for a lane that stands in no queue while it has them. If none of the scope keys puts the job off as far
-- by itself, room in another one may bring it forward: it is looked at again soon.
local function claim(lane, job, names, at)
  local taken, last = {}, 0
  for i = 1, #names do
    local key, cost = key_of(names[i]), cost_under(lane, job.costs, names[i])
    last = max(last, (earliest_of(key, now, cost, true)))
    book(key, at, cost)
    write('HSET', claims, names[i], lane.text)
    taken[i] = names[i] .. '=' .. format('%d', cost)
  end
  write('HSET', claims, '+' .. lane.text, format('%d ', at) .. table.concat(taken, ','))
  expire('claims')
  local when = at - lookahead
  if last < at then when = min(when, now + CLAIMED_FOR) end
  write('ZADD', timers, format('%d', soon(max(when, now + 1), lane.ends)), '+' .. lane.text)
end

-- Gives back what a lane claims, and returns under which scope keys.
local function release(lane)
  local at, taken = match(call('HGET', claims, '+' .. lane.text), '^(%d+) (.*)$')
  local names = {}
  for name, cost in gmatch(taken, '([^,=]+)=(%d+)') do
    names[#names + 1] = name
    book(key_of(name), tonumber(at), -tonumber(cost))
    hurry(name)
    write('HDEL', claims, name)
    tidy(name)
  end
  write('HDEL', claims, '+' .. lane.text)
  write('ZREM', timers, '+' .. lane.text)
  return names
end

-- When a lane is looked at again that is parked beside a scope key: when that has room for its first job. If it has, but
-- others do not at the same time, room in any of them may bring the job forward: it is looked at again soon.
local function parked_until(lane, job, own)
  local at, most = own, now + PARKED_FOR
  if own <= horizon then at, most = earliest(lane, job.costs, now, true, 'e'), now + CLAIMED_FOR end
  return max(min(at - lookahead, most, lane.ends), now + 1)
end

-- A job's place under a scope key that lacks room for it is claimed or, if that has a claim already, its lane is parked
-- there. Either way the lane makes way for others.
local function claim_or_park(queue, lane, job, name, at)
  looks = looks - LOOKS_OF_A_CLAIM
  write('HSET', prefix .. 'tags:' .. queue, '<' .. lane.flow, tag_text(cost_under(lane, job.costs, queue) / share_of(lane.flow)))
  if at ~= NEVER and not call('HGET', claims, name) then
    claim(lane, job, { name }, at)
  else
    local own, beside = earliest_of(key_of(name), now, cost_under(lane, job.costs, name), true), name .. '!'
    write('ZADD', prefix .. 'wait:' .. beside, tag_text((start_tag(name, lane.flow))), lane.text)
    due(beside, parked_until(lane, job, own))
    expire('wait:' .. beside)
  end
  leave(queue, lane)
end

-- Until when a flow is held back for the claim under a scope key: if the claim's place is near, and the flow is ahead of
-- the claimant by more than the claimed job. It ends after a while, and then one of the flow's jobs has its turn.
local function makes_way(name, flow, tag)
  local holder = call('HGET', claims, name)
  if not holder then return 0 end
  local at, taken = match(call('HGET', claims, '+' .. holder) or '', '^(%d+) (.*)$')
  local other = classes.parts(match(holder, '^[^|]*'))
  if not at or other == flow or at - now > NEAR_CLAIM then return 0 end
  local work
  for under, cost in gmatch(taken, '([^,=]+)=(%d+)') do
    if under == name then work = cost / share_of(other) end
  end
  if not work or tag <= start_tag(name, other) + work then return 0 end
  local tags = prefix .. 'tags:' .. name
  local since = tonumber(call('HGET', tags, '^'))
  if not since then
    since = now
    write('HSET', tags, '^', format('%d', now))
  end
  if since + MAKES_WAY_FOR <= now then write('HDEL', tags, '^') end
  return since + MAKES_WAY_FOR
end

local function longest(key)
  local length = 0
  for i = 1, #key.limits do
    if key.limits[i].units >= 0 then length = max(length, key.limits[i].length) end
  end
  return length
end

-- The scope keys that a heavy job has to claim for a start at this instant: those that have no room for it, and those that
-- it has claimed already, unless the start is so far ahead that it would only keep others from claiming. Of two lanes that
-- need each other's claims the one whose first job came later gives way (wound-wait): else both would wait for ever.
local function needed(lane, job, had, at)
  local kept, lacks, names = {}, {}, {}
  for i = 1, #had do kept[had[i]] = true end
  for i = 1, #lane do lacks[i] = lane[i].mode == 'e' and earliest_of(lane[i], now, job.costs[i], true) > horizon end
  for i = 1, #lane do
    local key = lane[i]
    if lacks[i] or key.mode == 'e' and kept[key.name] and at - now <= 2 * longest(key) then
      local holder, gives_way = call('HGET', claims, key.name), true
      if holder then
        local other = lane_of(holder)
        local arrival = match(call('LINDEX', other.list, 0) or format('%d:', NEVER), '^%d+')
        local later = tonumber(arrival) - tonumber(job.arrival)
        gives_way = later > 0 or later == 0 and lane.text < holder
        if gives_way then
          stand(key.name, other, arrival, now)
          release(other)
        end
      end
      if gives_way then names[#names + 1] = key.name end
    end
  end
  return names
end

-- Books the job that has a claim, when its place has come into the lookahead. If there is no room for it after all, it
-- claims what it lacks as well.
local function look_at_claim(text)
  if not call('HGET', claims, '+' .. text) then return write('ZREM', timers, '+' .. text) end
  looks = looks - LOOKS_OF_A_CLAIM
  local lane = lane_of(text)
  local names = release(lane)
  local job, thrown, more = ready_job(lane)
  if more or thrown and job then return stand(names[1], lane, job and job.arrival or format('%d', now), now) end
  if not job then return end
  local at, mover = earliest(lane, job.costs, now, true, 'e')
  if at <= horizon then
    for i = 1, #names do
      local tags, tag = prefix .. 'tags:' .. names[i], start_tag(names[i], lane.flow)
      if call('EXISTS', tags) == 1 and tag > virtual_time(names[i]) then set_virtual_time(names[i], tag) end
    end
    local following, more = book_first(lane, job, at)
    if following or more then stand(names[1], lane, following and following.arrival or format('%d', now), now) end
    return
  end
  names = at ~= NEVER and needed(lane, job, names, at) or {}
  if #names > 0 then
    claim(lane, job, names, (earliest(lane, job.costs, now, true, 'e')))
  else
    local name, when = blocked(lane, job.costs, at, mover)
    stand(name, lane, job.arrival, when)
  end
end
return PARKED_FOR, parked_until, claim_or_park, makes_way, look_at_claim
