-- How long the line of each scope key is: the jobs and the units of all counted records. A job's first record is
-- counted if its process bounds any line; its later records are counted if the first one was.
-- uses: records
local ALL = '*' -- the field beside those of scope keys: the number of all counted records
local lengths = prefix .. 'waiting'

-- The costs and the lane of a counted record; nil for other records.
local function counted_terms(record)
  local costs_text, lane = match(record, '^%-%d+ (%S+) %+ .-(%S+)$')
  if costs_text then return costs_text, lane end
  return match(record, '^%d+ (%S+) %d+ %+ .-(%S+)$')
end

-- Whether a job's next record is counted. before: its record so far, nil for none.
local function is_counted(before)
  if before then return counted_terms(before) ~= nil end
  return counts
end

-- Whether a job has lost a slot for which its flow paid, and has not lost the next one, which is free.
local function has_lost(record) return match(record or '', '= %S+$') ~= nil end

-- The marks of a job's next record: "+ " if it is counted, "= " if the job has lost a slot.
local function marks_of(before, lost) return (is_counted(before) and '+ ' or '') .. (lost and '= ' or '') end

-- The field ALL, and those of a lane's scope keys.
local function fields_of(text)
  local fields = { ALL }
  for name in gmatch(text, '[|,]([^,]+)') do fields[#fields + 1] = name end
  return fields
end

-- The lengths of fields, of which ALL is the first, and whether records were lost. If fewer jobs have a record than
-- are counted, records were lost, and all lengths begin anew.
local function read_lengths(fields)
  local found = call('HMGET', lengths, unpack(fields))
  for i = 1, #fields do
    local known, units = match(found[i] or '', '^(%d+) (%d+)$')
    found[i] = { jobs = tonumber(known or 0), units = tonumber(units or 0) }
  end
  if found[1].jobs <= call('HLEN', jobs) then return found, false end
  for i = 1, #fields do found[i] = { jobs = 0, units = 0 } end
  return found, true
end

-- Adds a job to the lengths of its lane's scope keys; with a sign of -1, subtracts it.
local function count(costs_text, text, sign)
  local fields = fields_of(text)
  local found, lost = read_lengths(fields)
  if lost then write('DEL', lengths) end
  local costs = costs_of(fields, costs_text)
  for i = 1, #fields do
    local left, units = found[i].jobs + sign, i > 1 and found[i].units + sign * costs[i - 1] or 0
    if left > 0 then
      write('HSET', lengths, fields[i], format('%d %d', left, min(NEVER, max(0, units))))
    else
      write('HDEL', lengths, fields[i])
    end
  end
  expire(lengths)
end

-- Replaces the record of a job. before, record: its old and its new record, nil for none.
local function note(id, before, record)
  if before or counts then -- else nothing of it is counted
    local costs_text, text = counted_terms(before or '')
    local new_costs_text, new_text = counted_terms(record or '')
    if costs_text ~= new_costs_text or text ~= new_text then
      if text then count(costs_text, text, -1) end
      if new_text then count(new_costs_text, new_text, 1) end
    end
  end
  if record then write('HSET', jobs, id, record) else write('HDEL', jobs, id) end
end

-- The first scope key of a lane whose line has no room for a job, and the length of that line; nil if all have room.
-- bounds: "jobs/units" of each scope key, separated by commas, 0 for none.
local function full_in(lane, costs, bounds)
  local found, i = read_lengths(fields_of(lane.text)), 0
  for most, most_units in gmatch(bounds, '(%d+)/(%d+)') do
    i = i + 1
    local length = found[i + 1]
    local is_full = most ~= '0' and length.jobs + 1 > tonumber(most)
      or most_units ~= '0' and length.units + costs[i] > tonumber(most_units)
    if is_full and lane[i].mode == ENFORCE then return lane[i].name, length end
  end
end
return ALL, lengths, is_counted, has_lost, marks_of, read_lengths, note, full_in
