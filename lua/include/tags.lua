-- What flows have had: their finish tags and marks in queues, and their shares.
--   finish:<queue>       zset: flows that do not stand there by finish tag; none that is not after the virtual time counts
--   tags:<queue>         hash: '*' the virtual time, '>' and a flow: it has had its turn and stands elsewhere; '#' and a
--                        flow that has had lanes of a lower priority here: the virtual time of its priorities, then
--                        their finish tags
-- Both are kept as long as a flow stands there.
-- shares zset: of flows that have another than 1, the second in which it was told last, times 2^20, plus the share.
-- uses: records, classes
local shares = prefix .. 'shares'
local MOST_TAGS, FORGOTTEN_AT_ONCE = 1000, 50 -- finish tags of a queue; of them and of shares, how many a look forgets
local MOST_SHARES = 10000 -- about a megabyte; the share of a flow beyond them is 1 until its next job asks

local virtual_times = {}
local function virtual_time(queue)
  virtual_times[queue] = virtual_times[queue] or tonumber(call('HGET', tags_of(queue), VIRTUAL) or 0)
  return virtual_times[queue]
end

local function set_virtual_time(queue, tag)
  virtual_times[queue] = tag
  if tag then write('HSET', tags_of(queue), VIRTUAL, tag_text(tag)) end
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

-- Forgets that a flow has had its turn under the scope keys of a lane of which no job is left.
local function end_lane(lane)
  for i = 1, #lane do write('HDEL', tags_of(lane[i].name), HAD_TURN .. lane.flow) end
end

-- A waiting job asks again within ten days and states its flow's share anew. Other shares are forgotten then.
local SHARE_KEPT, SHARE_SECOND = 864000, 1048576
local unequal = call('EXISTS', shares) == 1
local function share_of(flow) return unequal and max(1, tonumber(call('ZSCORE', shares, flow) or 1) % SHARE_SECOND) or 1 end
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
return shares, virtual_time, set_virtual_time, set_finish_tag, forget_finished, end_lane, share_of, set_share, forget_shares
