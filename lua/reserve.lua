-- Purpose: decide for jobs, one after the other.
-- ARGV[4] asker: who asks; ARGV[5] asking: rises with each call of the asker, used up also without jobs; 0: look only
-- ARGV[6..] of each job: id, lane, "costs plan max_wait latest share": 0 or 1; us; us from now until its last useful start,
--   -1: that has passed; 1 and up
-- Reply: text, repeated for the same asking: "now next", then a line for each job that was decided, in order; if that took all the
--   steps of one call, the others are to be asked for again:
--   "1 start lease waited", then "!name,..." the scope keys that are off and charged nothing, if there are any, then
--   "holder until" of what would hold it back were it not in shadow; lease: us, the shortest of the places that it occupies,
--   0 for none; waited: us from the job's arrival to its start
--   "2 slot" or "2 slot holder used booked"; "3 estimate holder used booked ahead flows", holder '-' for none
--   "4 start" or "4 start holder used booked"; "5 holder origin"; "0 foreign key"; holder: "name/units/span/precision" or "name/p"
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
    usual.occupies = usual.occupies or usual[i].running
  end
  for i = 7, #ARGV, 3 do
    local lane, cost = lanes[ARGV[i]], match(ARGV[i + 1], '^(%d+) 0 %d+ %d')
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
  local granted = format('1 %d 0 0', now)
  for i = 6, #ARGV, 3 do
    answers[#answers + 1] = usual.occupies and occupy_usual(usual, lanes[ARGV[i + 1]], ARGV[i + 1], ARGV[i], ARGV[i + 2]) or granted
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
-- include: decide
for i = 1, #names do texts[names[i]] = found[i + 3] end
if asking == 0 then
  write = function() end
else
  call('SET', prefix .. 'none', '-', 'XX') -- nothing; refused, before anything is written, where Redis takes no writes
end

local records, seen = {}, {}
if line and #ARGV > 5 then
  local ids = {}
  for i = 6, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
  records = call('HMGET', jobs, unpack(ids))
  check_line()
end
for i = 6, #ARGV, 3 do
  if budget.left <= 0 and i > 6 then break end
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
