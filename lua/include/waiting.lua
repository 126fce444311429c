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

-- Whether a job has lost a slot for which its flow has paid, so that its next slot is free.
local function has_lost(record) return match(record or '', '= %S+$') ~= nil end

-- The marks of a job's slots that were taken over in a row: a "^" for each.
local function taken_over(record) return match(record or '', ' (%^+) ') or '' end

-- The marks of a job's next record: "+ " if it is counted, those of slots taken over, "= " if it has lost a slot.
local function marks_of(before, lost, taken)
  return (is_counted(before) and '+ ' or '') .. (taken ~= '' and taken .. ' ' or '') .. (lost and '= ' or '')
end

-- The field ALL, and those of a lane's scope keys.
local function fields_of(text)
  local fields = { ALL }
  for name in gmatch(text, '[|,]([^,]+)') do fields[#fields + 1] = name end
  return fields
end

-- Lengths as this call has read and changed them, by field. lost: whether records were lost before it. If fewer jobs
-- have a record than are counted, they were, and all lengths begin anew.
local known, changed, lost = {}, {}, nil

-- The lengths of fields, of which ALL is the first.
local function read_lengths(fields)
  local found, missing = {}, {}
  for i = 1, #fields do if not known[fields[i]] then missing[#missing + 1] = fields[i] end end
  local texts = #missing > 0 and call('HMGET', lengths, unpack(missing)) or {}
  for i = 1, #texts do
    local count, units = match(texts[i] or '', '^(%d+) (%d+)$')
    if lost == nil then lost = tonumber(count or 0) > call('HLEN', jobs) end
    known[missing[i]] = { jobs = not lost and tonumber(count) or 0, units = not lost and tonumber(units) or 0 }
  end
  for i = 1, #fields do found[i] = known[fields[i]] end
  return found
end

-- Adds a job to the lengths of its lane's scope keys; with a sign of -1, subtracts it.
local function count(costs_text, text, sign)
  local fields = fields_of(text)
  local found, costs = read_lengths(fields), costs_of(fields, costs_text)
  for i = 1, #fields do
    local length = found[i]
    length.jobs, changed[fields[i]] = max(0, length.jobs + sign), true
    length.units = length.jobs > 0 and i > 1 and min(NEVER, max(0, length.units + sign * costs[i - 1])) or 0
  end
end

-- Writes the lengths that have changed.
local function save_lengths()
  if lost and changed[ALL] then write('DEL', lengths) end
  for field in pairs(changed) do
    local text = known[field].jobs > 0 and format('%d %d', known[field].jobs, known[field].units)
    if text then write('HSET', lengths, field, text) else write('HDEL', lengths, field) end
    expire(lengths)
  end
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
return ALL, lengths, is_counted, has_lost, taken_over, marks_of, read_lengths, save_lengths, note, full_in
