-- What a pull tells of: booked jobs, and overdue ones, whose bookings' grace was over before they came. A driver that
-- delivers jobs gets each overdue job again for ten minutes, at growing intervals.
local FORGET_AFTER, TOLD_AGAIN = 600000000, 1000000
local booked, overdue = {}, {}

local function tell(list, id, slot, text)
  for _, value in ipairs({ id, slot, text }) do list[#list + 1] = value end
end

-- Reports a job that should ask again, and keeps its position for a while.
local function to_ask(id, slot, costs_text, arrival, text)
  write('HSET', jobs, id, format('0 %s %s %s', costs_text, arrival, text))
  write('ZADD', timers, format('%d', now + FORGET_AFTER), '=' .. id)
  write('ZADD', overdues, format('%d', brings and now + TOLD_AGAIN or now), id)
  expire('overdue')
  if brings then tell(overdue, id, slot, text) end
end

-- Reports a job again that has still not come.
local function tell_again(id)
  local arrival, text = match(call('HGET', jobs, id) or '', '^0 %S+ (%d+) (.*)$')
  local forgotten = call('ZSCORE', timers, '=' .. id)
  if not arrival or not forgotten then return write('ZREM', overdues, id) end
  tell(overdue, id, arrival, text)
  write('ZADD', overdues, format('%d', now + max(TOLD_AGAIN, now + FORGET_AFTER - tonumber(forgotten))), id)
end

-- Ends a booking whose grace is over. The job keeps its position for a while. Before that, reports a plan.
local function end_booking(id)
  local record = call('HGET', jobs, id)
  local slot, costs, arrival, text = match(record or '', '^(%d+) (%S+) (%d+) (.*)$')
  if not slot or slot == '0' then
    if slot then write('HDEL', jobs, id) end
    write('ZREM', timers, '=' .. id)
    return write('ZREM', overdues, id)
  end
  local ends = slot + grace
  if now < ends and ends <= horizon + grace then
    tell(booked, id, slot, text)
    bookings = bookings - 1
    return write('ZADD', timers, format('%d', ends), '=' .. id)
  end
  unbook(id, record)
  to_ask(id, slot, costs, arrival, text)
  for name in gmatch(match(text, '|(.*)$'), '[^,]+') do hurry(name) end
end
return booked, overdue, tell, to_ask, tell_again, end_booking
