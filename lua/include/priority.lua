-- Priorities. A class is the lanes of a flow that have the same priority, "<flow>" or "<flow>#<priority>". A flow's
-- turn in a queue is divided among its classes by start-time fair queueing again, one level below the flows: a unit of
-- a class counts for lower ^ priority.
-- uses: records, tags
local classes = {}

-- The flow of a class, and the mark of the class among the flow's lanes; nil for priority 0.
function classes.parts(class)
  local flow, mark = match(class, '^(.*)(#%d)$')
  return flow or class, mark
end

local function priority_of(mark) return mark and tonumber(sub(mark, 2)) or 0 end

-- A list of the virtual time of a flow's classes and then the tag of each, and a function that returns the tag of a
-- class.
function classes.tags(text)
  local tags = {}
  for tag in gmatch(text or '', '%S+') do tags[#tags + 1] = tonumber(tag) end
  return tags, function(mark) return max(tags[1] or 0, tags[priority_of(mark) + 2] or 0) end
end

-- The classes of a flow that have lanes in a queue, in the order of their tags; with equal tags, of their priorities.
local function in_order(queue, flow, lanes)
  local marks = call('ZRANGEBYSCORE', lanes, '-inf', '(0')
  local _, tag_of = classes.tags(call('HGET', tags_of(queue), CLASSES .. flow))
  local found = { { lanes = lanes, before = #marks, tag = tag_of(nil), priority = 0 } }
  for _, mark in ipairs(marks) do
    local priority = priority_of(mark)
    found[#found + 1] = { lanes = lanes .. mark, before = 0, tag = tag_of(mark), priority = priority, mark = mark }
  end
  table.sort(found, function(a, b)
    if a.tag ~= b.tag then return a.tag < b.tag end
    return a.priority < b.priority
  end)
  return found
end

-- The lane of a rank among a flow's lanes in a queue, in the order of their turns.
function classes.at(queue, flow, rank)
  local lanes = lanes_of(queue, flow)
  local first = call('ZRANGE', lanes, 0, 0)[1]
  if rank == 0 and first and not match(first, '^#%d$') then return first end
  if not first then return nil end
  for _, class in ipairs(in_order(queue, flow, lanes)) do
    local size = call('ZCARD', class.lanes) - class.before
    if size > rank then return call('ZRANGE', class.lanes, class.before + rank, class.before + rank)[1] end
    if size == 0 and class.mark then write('ZREM', lanes, class.mark) end -- its lanes have expired
    rank = rank - max(0, size)
  end
end

-- Adds a lane to its flow's lanes.
function classes.add(queue, lane, arrival)
  write('ZADD', lanes_of(queue, lane.class), arrival, lane.text)
  if lane.mark then write('ZADD', lanes_of(queue, lane.flow), priority_of(lane.mark) - 10, lane.mark) end
end

-- Removes a lane. Returns whether its flow has other lanes.
function classes.remove(queue, lane)
  local lanes = lanes_of(queue, lane.class)
  write('ZREM', lanes, lane.text)
  if call('EXISTS', lanes) == 1 then return true end
  if not lane.mark then return false end
  write('ZREM', lanes_of(queue, lane.flow), lane.mark)
  return call('EXISTS', lanes_of(queue, lane.flow)) == 1
end

function classes.expire(queue, lane)
  expire(lanes_of(queue, lane.class))
  if lane.mark then expire(lanes_of(queue, lane.flow)) end
end

-- Moves the tag of a lane's class by charged work. If that is for a start, the classes' virtual time moves to the tag.
function classes.charge(tags, lane, text, work, is_served, leaves)
  local all, tag_of = classes.tags(text)
  local tag, at = tag_of(lane.mark), priority_of(lane.mark) + 2
  all[1] = is_served and tag or all[1] or 0
  for i = 2, at do all[i] = all[i] or 0 end
  all[at] = moved_by(tag, work * lower ^ (at - 2), all[1], leaves)
  for i = 1, #all do all[i] = tag_text(all[i]) end
  write('HSET', tags, CLASSES .. lane.flow, table.concat(all, ' '))
end
return classes
