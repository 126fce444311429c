-- Purpose: decide for jobs, one after the other.
-- ARGV[4] asker: who asks
-- ARGV[5] asking: rises with each call of the asker, also with one without jobs; 0: decide without writing
-- ARGV[6..] of each job:
--   id
--   lane
--   "costs plan max_wait latest share[+advance][ bounds]"
--     costs, units: one number, or one for each scope key, separated by commas
--     plan: 1 if the caller only plans the job, else 0; max_wait: for how long it may wait in its handler, us
--     latest: from now until its last useful start, us; -1: that has passed; share of its flow, 1 and up
--     advance: how many units more it asks for, for jobs of its lane that come soon
--     bounds, of a job that may be refused: "jobs/units" of each scope key, separated by commas, 0 for none
-- Reply: text, repeated for the same asking: "now next", then a line for each job that was decided, in order
--   If the jobs so far used up the steps of the call, the caller asks again for the others.
--   holder: what holds a job back, "name/units/span/precision", or "name/p" for a pause
--   "1 start lease waited [+units ends] [!name,...] [holder until]": granted
--     units: its advance; ends: jobs of its lane may start out of it until then
--     lease: the shortest of its places, us, 0 for none; waited: us from its arrival to its start
--     names: scope keys that are off; holder until: what would hold it back if it were not in shadow
--   "2 slot" or "2 slot holder used booked": booked
--   "3 estimate holder used booked ahead flows": waits; holder '-' for none
--   "4 start" or "4 start holder used booked": too late
--   "5 holder origin": never fits
--   "6 estimate holder used booked ahead flows name jobs units": not taken, since the line of a scope key is full
--     name, jobs, units: of the scope key, and the length of its line
--   "0 error": its keys hold foreign data
-- Errors: STALE an asking older than the last
-- uses: request, scopes

-- Read.
local asker, asking, stands = prefix .. 'asked:' .. ARGV[4], tonumber(ARGV[5]), call('ZCARD', prefix .. 'timers') > 0
local asked, names, lanes, answers = {}, {}, {}, {}

-- Reads the jobs, and notes the names of their scope keys, each once; a lane has their places among the names.
local function read_jobs()
  local places = {}
  for i = 6, #ARGV, 3 do
    local job = { id = ARGV[i], lane = ARGV[i + 1], terms = ARGV[i + 2] }
    asked[#asked + 1] = job
    if not lanes[job.lane] then
      local lane = {}
      for name in gmatch(job.lane, '[|,]([^,]+)') do
        if not places[name] then names[#names + 1], places[name] = name, #names + 1 end
        lane[#lane + 1] = places[name]
      end
      lanes[job.lane] = lane
    end
  end
end
read_jobs()
local fetch = { asker }
for i = 1, #names do fetch[i + 1] = prefix .. 'key:' .. names[i] end
local found = read_control(unpack(fetch))
local control, last_answer = found[2], found[3]
local function text_of(place) return found[place + 3] end
if last_answer and asking > 0 then
  local last, reply = match(last_answer, '^(%d+) (.*)$')
  last = tonumber(last) or error('FOREIGN asked:' .. ARGV[4], 0)
  if last == asking then return reply end
  if last > asking then return redis.error_reply('STALE ' .. ARGV[5]) end
end

local function remember(next_look)
  local reply = format('%d %d\n', now, next_look) .. table.concat(answers, '\n')
  if asking > 0 then
    make_control(control)
    call('SET', asker, ARGV[5] .. ' ' .. reply, 'PX', '600000')
  end
  return reply
end

-- uses: usual
-- Grants all jobs if each of them is the usual case.
local function grant_usual()
  local keys, occupies, advances = {}, false, {}
  for i = 1, #names do
    keys[i] = usual.key(names[i], text_of(i))
    if not keys[i] then return false end
    occupies = occupies or keys[i].running
  end
  for i = 1, #asked do
    local lane, cost, advance = lanes[asked[i].lane], match(asked[i].terms, '^(%d+) 0 %d+ %d+ %d+%+?(%d*)')
    if not cost then return false end
    cost = cost + 0
    for j = 1, #lane do
      local key = keys[lane[j]]
      for k = 1, #key do
        local w = key[k]
        if w.left < cost then return false end
        w.left, w.added = w.left - cost, w.added + cost
      end
    end
    advances[i] = advance ~= '' and usual.advance(keys, lane, advance + 0)
  end
  local granted = format('1 %d 0 0', now)
  for i = 1, #asked do
    local job = asked[i]
    answers[i] = occupies and usual.occupy(keys, lanes[job.lane], job) or granted
    if advances[i] then answers[i] = format('%s%s', answers[i], advances[i]) end
  end
  for i = 1, #keys do usual.save(keys[i]) end
  return true
end
if not stands and asking > 0 and grant_usual() then return remember(0) end

-- uses: records, key, ontime
for i = 1, #names do texts[names[i]] = text_of(i) end
local records, seen = {}, {}
if stands and #asked > 0 then
  local ids = {}
  for i = 1, #asked do ids[i] = asked[i].id end
  records = call('HMGET', jobs, unpack(ids))
  if asking > 0 then
    local fine, starts = pcall(start_booked, asked, records, names, lanes)
    if fine and starts then
      answers = starts
      save_keys()
      return remember(next_look())
    end
  end
end

-- Decide all other cases.
-- uses: entries, queue, line, takeover, decide
if stands and #asked > 0 then check_line() end
-- Finds edges that are missing before anything is decided; other errors are those of single jobs.
local fine, problem = pcall(function()
  for i = 1, #names do key_of(names[i]) end
  for i = 1, #asked do
    if records[i] then check_record(records[i]) end
  end
end)
if not fine and match(tostring(problem), '^EDGES ') then error(problem, 0) end
if asking == 0 then
  write_nothing()
else
  call('SET', prefix .. 'none', '-', 'XX') -- sets nothing, but fails here where Redis takes no writes
end

in_line.any = stands
for i = 1, #asked do
  if budget.left <= 0 and i > 1 then break end
  budget.left = budget.left - 50
  local id, record = asked[i].id, records[i]
  local costs_text, plan, max_wait, latest, share, bounds =
    match(asked[i].terms, '^(%S+) ([01]) (%d+) (%-?%d+) (%d+)%+?%d* ?(%S*)$')
  local job = {
    id = id, arrival = now + i - 1, costs_text = costs_text, share = share, plan = plan == '1',
    max_wait = tonumber(max_wait), latest = tonumber(latest), bounds = bounds ~= '' and bounds or nil,
  }
  local fine, said = pcall(function()
    local lane = lane_of(asked[i].lane)
    if seen[id] or gave_way[id] then record = call('HGET', jobs, id) end -- it was decided on before
    seen[id], job.costs = true, costs_of(lane, costs_text)
    return decide(job, lane, record or nil)
  end)
  -- An error of one job, such as foreign data under a key, leaves the other jobs alone.
  answers[i] = fine and said or '0 ' .. (type(said) == 'table' and said.err or tostring(said))
end

-- Write.
if asking > 0 then save_keys() end
return remember(save_line())
