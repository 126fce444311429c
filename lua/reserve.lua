-- Purpose: decide for jobs, one after the other.
-- ARGV[4] asker: who asks; ARGV[5] asking: rises with each call of the asker, used up also without jobs; 0: look only
-- ARGV[6..] of each job: id, lane, "costs plan max_wait latest share": 0 or 1, us, us from now or -1, 1 and up
-- Reply: text, repeated for the same asking: "now next", then a line for each job:
--   "1 start lease" or "1 start lease holder until", lease: us, the shortest of what it holds, 0 for nothing
--   "2 slot" or "2 slot holder used booked"; "3 estimate holder used booked ahead flows", holder '-' for none
--   "4 start" or "4 start holder used booked"; "5 holder origin"; "0 foreign key"
--   holder: "name/units/window/precision" or "name/p"
-- Errors: STALE an asking older than the last
-- include: request
-- Read.
local asker, asking, line = prefix .. 'asked:' .. ARGV[4], tonumber(ARGV[5]), call('ZCARD', prefix .. 'timers') > 0
local names, places, fetch, lanes, answers = {}, {}, { prefix .. 'none', KEYS[1], asker }, {}, {}
for i = 7, #ARGV, 3 do
  local text = ARGV[i]
  if not lanes[text] then
    local lane = {}
    for name in gmatch(text, '[|,]([^,]+)') do
      local place = places[name]
      if not place then
        place = #names + 1
        names[place], places[name], fetch[place + 3] = name, place, prefix .. 'key:' .. name
      end
      lane[#lane + 1] = place
    end
    lanes[text] = lane
  end
end
local found = call('MGET', unpack(fetch)) -- 'none' is never there: refused, with nothing written, while the slot is moved
if found[3] and asking > 0 then
  local last, reply = match(found[3], '^(%d+) (.*)$')
  last = tonumber(last) or error('FOREIGN asked:' .. ARGV[4], 0)
  if last == asking then return reply end
  if last > asking then return redis.error_reply('STALE ' .. ARGV[5]) end
end
read_scopes(found[2])

local function remember(next_look)
  local reply = format('%d %d\n', now, next_look) .. table.concat(answers, '\n')
  if asking > 0 then
    if not found[2] then call('SET', KEYS[1], '-', 'PX', kept) end
    call('SET', asker, ARGV[5] .. ' ' .. reply, 'PX', '600000')
  end
  return reply
end

-- include: usual
-- Grants all jobs if each of them is the usual case.
local function grant_usual()
  local usual = {}
  for i = 1, #names do
    usual[i] = usual_key(names[i], found[i + 3])
    if not usual[i] then return false end
    usual.hold = usual.hold or usual[i].running
  end
  for i = 7, #ARGV, 3 do
    local lane, cost = lanes[ARGV[i]], match(ARGV[i + 1], '^(%d+) 0 ')
    if not cost then return false end
    cost = cost + 0
    for j = 1, #lane do
      local key = usual[lane[j]]
      for k = 1, #key do
        local w = key[k]
        if w.left < cost then return false end
        w.left, w.added = w.left - cost, w.added + cost
      end
    end
  end
  local granted = format('1 %d 0', now)
  for i = 6, #ARGV, 3 do
    answers[#answers + 1] = usual.hold and hold_usual(usual, lanes[ARGV[i + 1]], ARGV[i + 1], ARGV[i], ARGV[i + 2]) or granted
  end
  for i = 1, #usual do save_usual(usual[i]) end
  return true
end
if not line and asking > 0 and grant_usual() then return remember(0) end

-- Decide all other cases.
-- include: entries
-- include: ledger
-- include: placing
-- include: line
for i = 1, #names do texts[names[i]] = found[i + 3] end
if asking == 0 then
  write = function() end
else
  call('SET', prefix .. 'none', '-', 'XX') -- nothing; refused, before anything is written, where Redis takes no writes
end

local function told(key, holder)
  if not key then return '' end
  if holder == 'p' then return format(' %s/p 0 0', key.name) end
  local ledger = ledger_of(key, holder.window)
  return format(' %s/%d/%d/%d %d %d', key.name, holder.units, holder.window, holder.precision, uses(key, ledger))
end

-- Decide.
local function forget(id, record)
  if record then
    write('HDEL', jobs, id)
    write('ZREM', timers, '=' .. id)
  end
end

-- Notes what a job holds that runs. Returns the shortest lease, 0 if it holds nothing.
local function hold_places(id, lane, costs, at)
  local places = {}
  for i = 1, #lane do
    local key = lane[i]
    for j = 1, key.mode ~= 'o' and costs[i] > 0 and #key or 0 do
      local ledger = key[j]
      if ledger.window < 0 then places[#places + 1] = { key.name, ledger.window, floor(time_of(key, at) / ledger.precision), costs[i] } end
    end
  end
  return hold(id, at, lane.class, at + 1000000, places, at)
end

local function grant(id, lane, costs, at)
  local start, key, holder = earliest(lane, costs, at, true, 's')
  local shadow = start > at and match(told(key, holder), '^ %S+') .. format(' %d', start) or ''
  for i = 1, #lane do
    if lane[i].mode ~= 'o' then spend(lane[i], at, costs[i]) end
  end
  return format('1 %d %d', at, hold_places(id, lane, costs, at)) .. shadow
end

local function waiting(lane, at, key, holder)
  local flows = 0
  for i = 1, #lane do flows = max(flows, call('ZCARD', prefix .. 'wait:' .. lane[i].name)) end
  local held = told(key, holder)
  return format('3 %d%s %d %d', at, held ~= '' and held or ' - 0 0', max(0, lane.jobs - 1), flows)
end

-- A lane has another first job: its queue, or its claim, is told.
local function lead(lane, arrival)
  for i = 1, #lane do
    local lanes = classes.lanes(lane[i].name, lane.class)
    if call('ZSCORE', lanes, lane.text) then
      write('ZADD', lanes, arrival, lane.text)
      due(lane[i].name, now)
    end
  end
  look_anew(lane, arrival, match(call('LINDEX', lane.list, 1) or '', '^%d+:[%d,]+:(.*)$'))
end

local function wait(job, lane, at, key, holder, other, back)
  local arrival, answer = format('%d', job.arrival), nil
  lane.jobs = lane.jobs + 1
  if lane.jobs > 1 then
    answer = waiting(lane, at, key, holder) -- what is foreign is found before anything is written
  elseif other then
    stand(other, lane, arrival, now)
  else
    local name, look = blocked(lane, job.costs, at, key)
    stand(name, lane, arrival, look)
  end
  write(back and 'LPUSH' or 'RPUSH', lane.list, arrival .. ':' .. job.costs_text .. ':' .. job.id)
  if lane.jobs == 1 then expire('lane:' .. lane.text) elseif back then lead(lane, arrival) end
  write('HSET', jobs, job.id, '-')
  if job.record then write('ZREM', timers, '=' .. job.id) end
  expire('jobs', 'timers')
  line = true
  return answer or waiting(lane, at, key, holder)
end

-- A start, a booking, or a place in the lane: at its front if the job had one before.
local function place(job, lane, record, back)
  local at, key, holder = earliest(lane, job.costs, now, true, 'e')
  if job.latest >= 0 and at > now + job.latest then
    forget(job.id, record)
    return format('4 %d', at) .. told(key, holder)
  end
  if job.share ~= '1' then
    write('HSET', shares, lane.flow, job.share)
    unequal = true
    expire('shares')
  elseif unequal then
    write('HDEL', shares, lane.flow)
  end
  local other
  if lane.jobs == 0 or back then
    other = line and not back and contended(lane)
    if not other and at <= horizon then
      if line and not back then charge(lane, job.costs, 1) end
      if at <= now + job.max_wait and not job.plan and may_start(lane, job.costs, at) then
        forget(job.id, record)
        return grant(job.id, lane, job.costs, at)
      end
      local held = told(key, holder)
      promise(job.id, lane, job.costs_text, job.costs, at, job.arrival)
      line = true
      expire('jobs', 'timers')
      return format('2 %d', at) .. held
    end
  end
  return wait(job, lane, at, key, holder, other, back)
end

-- Exchanges a booking for a start: what has really started decides, not what is promised. A booking further ahead than
-- any can be was made before the clock stepped back. Who only plans a job that is booked already is told so: its start is
-- for who brings it.
local function redeem(job, lane, slot)
  if slot > horizon + 30000000 then slot = now end
  local promised = job.plan or now < slot - job.max_wait
  if not promised then unbook(job.id, job.record) end
  local at, key, holder = earliest(lane, job.costs, promised and now or max(now, slot), false, 'e')
  if promised then return format('2 %d', job.slot) .. told(key, holder) end
  if at <= now + job.max_wait and may_start(lane, job.costs, at) then
    forget(job.id, job.record)
    return grant(job.id, lane, job.costs, at)
  end
end

local function heavy(job, lane)
  local limit, key = too_heavy(lane, job.costs)
  return limit and '5' .. match(told(key, limit), '^ %S+') .. ' ' .. key.origin
end

-- A job in line that asks meanwhile; nil if nothing is left of its lane.
local function still_waiting(job, lane)
  local said = heavy(job, lane)
  if said then
    local leads = call('HGET', claims, '=' .. job.id)
    local own = leads and lane_of(leads)
    local arrival, id = match(own and call('LINDEX', own.list, 0) or '', '^(%d+):[%d,]+:(.*)$')
    if id == job.id then look_anew(own, arrival, id) end
    forget(job.id, '-')
    return said
  end
  if lane.jobs == 0 then return nil end
  expire('lane:' .. lane.text) -- its line may stand for longer than its keys live: whoever asks renews them
  for i = 1, #lane do
    classes.expire(lane[i].name, lane)
    classes.expire(lane[i].name .. '!', lane)
  end
  return waiting(lane, earliest(lane, job.costs, now, true, 'e'))
end

local function decide(job, lane, record)
  lane.jobs = lane.jobs or call('LLEN', lane.list)
  if record == '-' then
    local said = still_waiting(job, lane)
    if said then return said end
    write('HDEL', jobs, job.id) -- it may be granted now, or stand in another lane
    record = nil
  end
  local back = false
  if record then
    local slot, _, arrival, text = match(record, '^(%d+) (%S+) (%d+) (.*)$')
    job.record, job.slot = record, tonumber(slot)
    if job.slot == 0 then write('ZREM', overdues, job.id) end
    if text ~= lane.text then
      unbook(job.id, record)
    else
      local answer = job.slot > 0 and redeem(job, lane, job.slot)
      if answer then return answer end
      back, job.arrival = true, tonumber(arrival)
    end
    if job.slot > 0 then -- its room is free
      for name in gmatch(match(text, '|(.*)$'), '[^,]+') do hurry(name) end
    end
  end
  local said = heavy(job, lane)
  if said then
    forget(job.id, record)
    return said
  end
  return place(job, lane, record, back)
end

local records, seen = {}, {}
if line and #ARGV > 5 then
  local ids = {}
  for i = 6, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
  records = call('HMGET', jobs, unpack(ids))
  check_line()
end
for i = 6, #ARGV, 3 do
  local costs, plan, max_wait, latest, share = match(ARGV[i + 2], '^(%S+) ([01]) (%d+) (%-?%d+) (%d+)$')
  local job = { id = ARGV[i], costs_text = costs, max_wait = tonumber(max_wait), latest = tonumber(latest), plan = plan == '1',
    share = share, arrival = now + (i - 6) / 3 }
  local fine, said = pcall(function()
    local lane = lane_of(ARGV[i + 1])
    local record = records[(i - 3) / 3]
    if seen[job.id] then record = call('HGET', jobs, job.id) end -- the same job again
    seen[job.id], job.costs = true, costs_of(lane, job.costs_text)
    return decide(job, lane, record or nil)
  end)
  -- One job's trouble, such as foreign data under a key, is not that of the others.
  answers[#answers + 1] = fine and said or '0 ' .. (type(said) == 'table' and said.err or tostring(said))
end

-- Write.
if asking > 0 then save_keys() end
return remember(save_line())
