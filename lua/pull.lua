-- Purpose: book the first jobs of lanes whose time has come, and find bookings that nobody came for.
-- ARGV[4] most bookings, most looks, and 1 if who asks brings jobs that did not come; 0: they are kept for who does
-- Reply: now, next, number of bookings, what went wrong or '', then id, slot and lane of each, then the same of each overdue
--   booking, and of each job that was thrown out for its weight
-- include: request
-- include: entries
-- include: ledger
-- include: placing
-- include: line

-- Read.
local bookings, looks, brings = match(ARGV[4], '^(%d+) (%d+) ([01])$')
bookings, looks, brings = tonumber(bookings), tonumber(looks), brings == '1'
local found = call('MGET', prefix .. 'none', KEYS[1], prefix .. 'pulled') -- refused, with nothing written, while the slot is moved
read_scopes(found[2])
if found[3] and found[3] - now > 1000000 then
  -- The clock stepped back: what was to be looked at by the old one is looked at now.
  local later = call('ZRANGEBYSCORE', timers, format('(%d', now), '+inf')
  for i = 1, #later do write('ZADD', timers, format('%d', now), later[i]) end
end
local due_now, found_due = {}, call('ZRANGEBYSCORE', timers, '-inf', format('%d', now), 'WITHSCORES', 'LIMIT', 0, looks)
for i = 1, #found_due, 2 do
  due_now[#due_now + 1] = {
    name = found_due[i], about = floor(found_due[i + 1] / max(1, floor(lookahead / 4))), place = i,
    wide = sub(found_due[i], -1) == '!' and 0 or min(2, call('ZCARD', prefix .. 'wait:' .. found_due[i])),
  }
end
-- Of what has become due at about the same time claims and parked lanes come first, then scope keys under which one flow
-- stands: the lanes that have room there have their turn with the others under the scope keys that they share.
table.sort(due_now, function(a, b)
  if a.about ~= b.about then return a.about < b.about end
  if a.wide ~= b.wide then return a.wide < b.wide end
  return a.place < b.place
end)
local due_again = brings and call('ZRANGEBYSCORE', overdues, '-inf', format('%d', now), 'LIMIT', 0, 50) or {}
local booked, overdue, drops = {}, {}, 2000
local FORGET_AFTER, PARKED_FOR, CLAIMED_FOR, TOLD_AGAIN, MOST_WITHOUT_ROOM = 600000000, 60000000, 5000000, 1000000, 4

-- Decide, and write the line on the way: a lane is told from what is in Redis.

-- Drops jobs from a lane that have left, and returns its first: arrival, costs, id. Else nil, and whether there are more
-- to drop than one pull may.
local function first_job(lane)
  while true do
    local elements = call('LRANGE', lane.list, 0, lane.gone and 63 or 1)
    if #elements == 0 then return nil, false end
    local ids = {}
    for i = 1, #elements do ids[i] = match(elements[i], '^%d+:[%d,]+:(.*)$') end
    local records = call('HMGET', jobs, unpack(ids))
    local gone = 0
    while gone < #elements and gone < drops and records[gone + 1] ~= '-' do gone = gone + 1 end
    if gone > 0 then write('LTRIM', lane.list, gone, -1) end
    drops = drops - gone
    if gone < #elements then
      if records[gone + 1] ~= '-' then
        looks = 0
        return nil, true
      end
      local arrival, costs = match(elements[gone + 1], '^(%d+):([%d,]+):')
      return { arrival = arrival, costs_text = costs, costs = costs_of(lane, costs), id = ids[gone + 1] }, false
    end
    lane.gone = true
  end
end

local function tell(id, slot, text)
  for _, value in ipairs({ id, slot, text }) do overdue[#overdue + 1] = value end
end

-- Tells of a job that is to ask, and has it find its place again for a while.
local function to_ask(id, slot, costs_text, arrival, text)
  write('HSET', jobs, id, format('0 %s %s %s', costs_text, arrival, text))
  write('ZADD', timers, format('%d', now + FORGET_AFTER), '=' .. id)
  write('ZADD', overdues, format('%d', brings and now + TOLD_AGAIN or now), id)
  expire('overdue')
  if brings then tell(id, slot, text) end
end

-- Tells of a job that was told of, or could not be, and has not come since: the longer ago, the seldomer.
local function tell_again(id)
  local arrival, text = match(call('HGET', jobs, id) or '', '^0 %S+ (%d+) (.*)$')
  local forgotten = call('ZSCORE', timers, '=' .. id)
  if not arrival or not forgotten then return write('ZREM', overdues, id) end
  tell(id, arrival, text)
  write('ZADD', overdues, format('%d', now + max(TOLD_AGAIN, now + FORGET_AFTER - tonumber(forgotten))), id)
end

-- Takes the first job of a lane out that weighs more than a limit allows: it holds up those behind it, and is to ask
-- again, to hear that. Returns whether it did so, and the first job then.
local function throw_out(lane, job)
  if not too_heavy(lane, job.costs) then return false, job end
  write('LPOP', lane.list)
  write('HDEL', claims, '=' .. job.id)
  to_ask(job.id, format('%d', now), job.costs_text, job.arrival, lane.text)
  return true, first_job(lane)
end

-- A flow of which a scope key cannot be read lets the others of a queue have their turn, once.
local passed_over, trouble = {}, nil
local function pass_over(queue, flow, problem)
  local wait = prefix .. 'wait:' .. queue
  local last = call('ZRANGE', wait, -1, -1, 'WITHSCORES')
  if passed_over[flow] or last[1] == flow then error(problem) end
  passed_over[flow], trouble = true, problem.err or tostring(problem)
  write('ZADD', wait, tag_text(last[2] + 1e-6), flow)
  firsts[queue] = nil
end

-- The lane whose turn it is in a queue, or that of a flow so many ranks behind; its first job and its flow's tag.
local function head(queue, rank)
  while looks > 0 do
    local flow, tag = first(queue)
    if rank > 0 then flow = call('ZRANGE', prefix .. 'wait:' .. queue, rank, rank)[1] end
    if not flow then return nil end
    looks = looks - 1
    local text = call('ZRANGE', prefix .. 'lanes:' .. queue .. ':' .. flow, 0, 0)[1]
    if not text then -- its lanes have expired
      write('ZREM', prefix .. 'wait:' .. queue, flow)
      firsts[queue] = nil
    else
      local fine, lane = pcall(lane_of, text)
      local job, more, thrown
      if fine then job, more = first_job(lane) else pass_over(queue, flow, lane) end
      if job then thrown, job, more = throw_out(lane, job) end
      if more then return nil end
      if fine and not job then
        leave(queue, lane)
      elseif fine and not thrown then
        return lane, job, tag
      elseif fine and sub(queue, -1) == '!' then
        look_anew(lane, job.arrival)
      elseif fine then
        write('ZADD', prefix .. 'lanes:' .. queue .. ':' .. flow, job.arrival, text)
      end
    end
  end
end

-- Books the first job of a lane and takes it out. Returns the next.
local function book_first(lane, job, at)
  write('LPOP', lane.list)
  promise(job.id, lane, job.costs_text, job.costs, at, tonumber(job.arrival))
  for _, value in ipairs({ job.id, format('%d', at), lane.text }) do booked[#booked + 1] = value end
  bookings = bookings - 1
  charge(lane, job.costs, 1)
  return first_job(lane)
end

local function move(from, to, lane, job, look)
  stand(to, lane, job.arrival, look)
  leave(from, lane)
end

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
  write('HSET', claims, '+' .. lane.text, format('%d ', at) .. table.concat(taken, ','), '=' .. job.id, lane.text)
  expire('claims')
  local when = at - lookahead
  if last < at then when = min(when, now + CLAIMED_FOR) end
  write('ZADD', timers, format('%d', soon(max(when, now + 1))), '+' .. lane.text)
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
  return max(min(at - lookahead, most), now + 1)
end

-- A job's place under a scope key that lacks room for it is claimed or, if that has a claim already, its lane is parked
-- there. Either way the lane makes way for others.
local function claim_or_park(queue, lane, job, name, at)
  write('HSET', prefix .. 'tags:' .. queue, '<' .. lane.flow, tag_text(cost_under(lane, job.costs, queue) / share_of(lane.flow)))
  if at ~= NEVER and not call('HGET', claims, name) then
    claim(lane, job, { name }, at)
  else
    local own, beside = earliest_of(key_of(name), now, cost_under(lane, job.costs, name), true), name .. '!'
    write('ZADD', prefix .. 'lanes:' .. beside .. ':' .. lane.flow, job.arrival, lane.text)
    write('ZADD', prefix .. 'wait:' .. beside, 'NX', tag_text((start_tag(name, lane.flow))), lane.flow)
    write('HSET', claims, '=' .. job.id, lane.text)
    firsts[beside] = nil
    due(beside, parked_until(lane, job, own))
    expire('lanes:' .. beside .. ':' .. lane.flow, 'wait:' .. beside, 'claims')
  end
  leave(queue, lane)
end

-- Whether a scope key has no room for a job only for its weight.
local function is_heavy(key, cost)
  return cost > 1 and earliest_of(key, now, 1, true) <= horizon
end

-- Whether a scope key has no room for so many units, or for as many as it ever has.
local function is_full(key, units)
  if key.mode ~= 'e' then return false end
  for i = 1, #key.limits do
    if key.limits[i].units >= 0 then units = min(units, key.limits[i].units) end
  end
  return earliest_of(key, now, units, true) > horizon
end

-- When a scope key without room is looked at again: when one unit has. If it has, but lanes that had their turn here
-- are to have it, they are given a while.
local function again(key)
  local one = earliest_of(key, now, 1, true)
  if one == NEVER then return NEVER end
  if one <= horizon then return now + floor(lookahead / 4) end
  return soon(max(one - lookahead, now + 1))
end

-- Until when a flow makes way for the claim under a scope key: if that is near, and the flow has had more than the one that
-- claims, by more than the job that waits. It does so for a while only, until one of its jobs has its turn.
local NEAR_CLAIM, MAKES_WAY_FOR = 10000000, 5000000
local function makes_way(name, flow, tag)
  local holder = call('HGET', claims, name)
  if not holder then return 0 end
  local at, taken = match(call('HGET', claims, '+' .. holder) or '', '^(%d+) (.*)$')
  local other = match(holder, '^[^|]*')
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

-- Books the first jobs that stand under a scope key until it has no room, and moves lanes under another one that has
-- none for them, or whose turn is not theirs. Returns when to look again, nil if nobody stands here any more.
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
        if tag > virtual_time(name) then write('HSET', prefix .. 'tags:' .. name, '*', tag_text(tag)) end
        local following, more = book_first(lane, job, at)
        if following then
          write('ZADD', prefix .. 'lanes:' .. name .. ':' .. lane.flow, following.arrival, lane.text)
          expire('lanes:' .. name .. ':' .. lane.flow, 'lane:' .. lane.text)
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

local function longest(key)
  local window = 0
  for i = 1, #key.limits do
    if key.limits[i].units >= 0 then window = max(window, key.limits[i].window) end
  end
  return window
end

-- The scope keys that a job claims whose place is at this instant: what it lacks, and what it had, unless the place is
-- so far ahead that what is claimed there would only keep others from claiming. Of two lanes that lack what the other
-- one has, the one whose first job came later gives way (wound-wait), so that they do not wait for each other for ever.
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
        local arrival, id = match(call('LINDEX', other.list, 0) or format('%d::', NEVER), '^(%d+):[%d,]*:(.*)$')
        local later = tonumber(arrival) - tonumber(job.arrival)
        gives_way = later > 0 or later == 0 and lane.text < holder
        if gives_way then
          stand(key.name, other, arrival, now)
          release(other)
          write('HDEL', claims, '=' .. id)
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
  if not call('HGET', claims, '+' .. text) then
    write('ZREM', timers, '+' .. text)
    return
  end
  looks = looks - 1
  local lane = lane_of(text)
  local names = release(lane)
  local job, more = first_job(lane)
  local thrown
  if job then thrown, job, more = throw_out(lane, job) end
  if more or thrown and job then return stand(names[1], lane, job and job.arrival or format('%d', now), now) end
  if not job then return end
  write('HDEL', claims, '=' .. job.id)
  local at, mover = earliest(lane, job.costs, now, true, 'e')
  if at <= horizon then
    for i = 1, #names do
      local tags, tag = prefix .. 'tags:' .. names[i], start_tag(names[i], lane.flow)
      if call('EXISTS', tags) == 1 and tag > virtual_time(names[i]) then write('HSET', tags, '*', tag_text(tag)) end
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

-- Ends a booking whose grace is over. The job keeps its place for a while.
local function end_booking(id)
  local record = call('HGET', jobs, id)
  local slot, costs, arrival, text = match(record or '', '^(%d+) (%S+) (%d+) (.*)$')
  if not slot or slot == '0' then
    if slot then write('HDEL', jobs, id) end
    write('ZREM', timers, '=' .. id)
    write('ZREM', overdues, id)
    return
  end
  unbook(id, record)
  to_ask(id, slot, costs, arrival, text)
  for name in gmatch(match(text, '|(.*)$'), '[^,]+') do hurry(name) end
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
for i = 1, #due_now do
  if bookings == 0 or looks == 0 then break end -- the other timers are older now than those looked at: the first next time
  local fine, problem = pcall(attempt, due_now[i].name)
  if not fine then
    trouble = type(problem) == 'table' and problem.err or tostring(problem)
    call('ZADD', timers, format('%d', now + 1000000), due_now[i].name) -- what else waits goes on
  end
end

for i = 1, #due_again do tell_again(due_again[i]) end

-- Write.
save_keys()
call('SET', prefix .. 'pulled', format('%d', now), 'PX', kept)
if #due_now > 0 then expire('jobs', 'timers') end
local reply = { format('%d', now), format('%d', next_look()), format('%d', #booked / 3), trouble or '' }
for i = 1, #booked do reply[#reply + 1] = booked[i] end
for i = 1, #overdue do reply[#reply + 1] = overdue[i] end
return reply
