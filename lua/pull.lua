-- Purpose: book the first jobs of lanes whose time has come, and find bookings that nobody came for.
-- ARGV[4] most bookings, most looks, 1 if who asks brings jobs that did not come, 0: they are kept for who does; and 1 if
--   flows are charged for the time that they hold places, else 0
-- ARGV[5..] of each granted job that has ended, whose places are given back first: id, start, its cool-downs, "scope=us,..."
-- Reply: now, next, number of bookings, what went wrong or '', at which check its steps were taken, 0 if they were not,
--   of each job that has ended 1 if it held its places until now, else 0, then id, slot and lane of each booking, then the
--   same of each overdue booking, and of each job that was thrown out for its weight
-- include: request
-- include: entries
-- include: ledger
-- include: placing
-- include: line
-- include: running

-- Read.
local bookings, looks, brings, timed = match(ARGV[4], '^(%d+) (%d+) ([01]) ([01])$')
bookings, looks, brings, timed = tonumber(bookings), tonumber(looks), brings == '1', timed == '1'
local most_looks, ended = looks, 0
local found = call('MGET', prefix .. 'none', KEYS[1], prefix .. 'pulled') -- refused, with nothing written, while the slot is moved
read_scopes(found[2])
for i = 5, #ARGV, 3 do run_of(ARGV[i], tonumber(ARGV[i + 1])) end
if #ARGV > 4 then check_line() end

local held = {}
for i = 5, #ARGV, 3 do held[#held + 1] = give_back(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], timed) and 1 or 0 end
count_moves()
for _, key in pairs(keys) do refit(key) end -- what is booked from here on is not counted where nothing counted any more
if found[3] and found[3] - now > 1000000 then hurry_all('0', '=') end -- the clock stepped back
local due_now, found_due = {}, call('ZRANGEBYSCORE', timers, '-inf', format('%d', now), 'WITHSCORES', 'LIMIT', 0, looks)
for i = 1, #found_due, 2 do
  due_now[#due_now + 1] = {
    name = found_due[i], about = floor(found_due[i + 1] / max(1, floor(lookahead / 4))), place = i,
    wide = min(2, call('ZCARD', prefix .. 'wait:' .. found_due[i])),
  }
end
-- Of timers that are due at about the same time claims come first, then scope keys with one flow, then
-- the others: a lane that has room under a scope key of its own then takes its turn under those that it shares.
table.sort(due_now, function(a, b)
  if a.about ~= b.about then return a.about < b.about end
  if a.wide ~= b.wide then return a.wide < b.wide end
  return a.place < b.place
end)
local due_again = brings and call('ZRANGEBYSCORE', overdues, '-inf', format('%d', now), 'LIMIT', 0, 50) or {}

-- Decide, and write the line on the way: a lane is told from what is in Redis.
-- include: overdue
-- include: turn
-- include: claim
-- include: look
for i = 1, #due_now do
  end_if_tired()
  if bookings == 0 or looks <= 0 then break end -- the other timers are older now than those looked at: the first next time
  local fine, problem = pcall(attempt, due_now[i].name)
  if not fine then
    note_trouble(problem)
    call('ZADD', timers, format('%d', now + 1000000), due_now[i].name) -- what else waits goes on
  end
end

for i = 1, #due_again do tell_again(due_again[i]) end
forget_shares()

-- Write.
save_keys()
call('SET', prefix .. 'pulled', format('%d', now), 'PX', kept)
if #due_now > 0 or #held > 0 then expire('jobs', 'timers', 'claims', 'shares', 'overdue') end
local reply = { format('%d', now), format('%d', save_line()), format('%d', #booked / 3), trouble[1] or '', ended, unpack(held) }
for i = 1, #booked do reply[#reply + 1] = booked[i] end
for i = 1, #overdue do reply[#reply + 1] = overdue[i] end
return reply
