-- Tags of start-time fair queueing, and the shares of flows. A flow that does not stand in a queue has a finish tag
-- there, which counts while it is after the queue's virtual time.
-- uses: records
local shares = prefix .. 'shares'
local MOST_TAGS, FORGOTTEN_AT_ONCE = 1000, 50 -- finish tags of a queue; how many tags or shares are forgotten at once
local MOST_SHARES = 10000 -- about a megabyte; a flow beyond them has a share of 1 until its next job asks

local function tag_text(tag) return format('%.17g', tag) end

-- Where work moves a tag. A job that leaves moves it back, but not further than four times its work before the virtual
-- time: if all jobs of a flow leave, as those of deleted tasks do, other flows have turns meanwhile. Work moves a tag
-- on even if it is less than the distance to the next number: else the flow would stay first.
local function moved_by(tag, work, virtual, leaves)
  if leaves then return min(tag, max(tag + work, virtual + 4 * work)) end
  return work > 0 and max(tag + work, tag + tag * 2 ^ -52) or tag + work
end

local virtual_times, moved = {}, {} -- moved: of queues whose virtual time the end of this call writes
-- The virtual time of a queue; found: what Redis has, if that was read.
local function virtual_time(queue, found)
  virtual_times[queue] = virtual_times[queue] or tonumber(found or call('HGET', tags_of(queue), VIRTUAL) or 0)
  return virtual_times[queue]
end

local function set_virtual_time(queue, tag)
  virtual_times[queue], moved[queue] = tag, nil
  if tag then write('HSET', tags_of(queue), VIRTUAL, tag_text(tag)) end
end

-- Moves the virtual time of a queue in which flows stand to a tag, if that is later.
local function serve(queue, tag)
  if tag > virtual_time(queue) then virtual_times[queue], moved[queue] = tag, true end
end

local function save_virtual_times()
  for queue in pairs(moved) do write('HSET', tags_of(queue), VIRTUAL, tag_text(virtual_times[queue])) end
end

local function forget_flow(queue, flow)
  write('ZREM', finish_of(queue), flow)
  write('HDEL', tags_of(queue), CLASSES .. flow)
end

local function set_finish_tag(queue, flow, tag)
  local finish = finish_of(queue)
  write('ZADD', finish, tag_text(tag), flow)
  expire(finish)
  if call('ZCARD', finish) > MOST_TAGS then forget_flow(queue, call('ZRANGE', finish, 0, 0)[1]) end
end

-- Forgets some of the flows whose finish tags the virtual time has passed.
local function forget_finished(queue)
  local till = tag_text(virtual_time(queue))
  local passed = call('ZRANGEBYSCORE', finish_of(queue), '-inf', till, 'LIMIT', 0, FORGOTTEN_AT_ONCE)
  for _, flow in ipairs(passed) do forget_flow(queue, flow) end
end

-- Forgets that a flow has had its turn under the scope keys of a lane without jobs.
local function end_lane(lane)
  for i = 1, #lane do write('HDEL', tags_of(lane[i].name), HAD_TURN .. lane.flow) end
end

-- The score of a share is the second in which a job last stated it times 2^20, plus the share. A waiting job asks again
-- within ten days; a share that no job has stated since is forgotten.
local SHARE_KEPT, SHARE_SECOND = 864000, 1048576
local unequal = call('EXISTS', shares) == 1
local function share_of(flow)
  return unequal and max(1, tonumber(call('ZSCORE', shares, flow) or 1) % SHARE_SECOND) or 1
end

local function set_share(flow, share)
  if share ~= '1' then
    write('ZADD', shares, format('%d', floor(now / 1000000) * SHARE_SECOND + share), flow)
    unequal = true
    if call('ZCARD', shares) > MOST_SHARES then write('ZREM', shares, call('ZRANGE', shares, 0, 0)[1]) end
    expire(shares)
  elseif unequal then
    write('ZREM', shares, flow)
  end
end

local function forget_shares()
  local till = format('%d', (floor(now / 1000000) - SHARE_KEPT) * SHARE_SECOND)
  local idle = unequal and call('ZRANGEBYSCORE', shares, '-inf', till, 'LIMIT', 0, FORGOTTEN_AT_ONCE) or {}
  if #idle > 0 then write('ZREM', shares, unpack(idle)) end
end
return tag_text, moved_by, shares, virtual_time, set_virtual_time, serve, save_virtual_times, set_finish_tag,
  forget_finished, end_lane, share_of, set_share, forget_shares
