-- Purpose: book the first jobs of lanes whose time has come, and find bookings whose jobs did not come.
-- ARGV[4] "bookings looks delivers timed"
--   bookings, looks: how many the pull makes at most
--   delivers: 1 if the caller delivers jobs that did not come, 0: they are kept for a caller that does
--   timed: 1 if flows pay for the time that their jobs occupy places, else 0
-- ARGV[5..] of each granted job that has ended, whose places are given back first:
--   id
--   start, us
--   cool-downs "scope=length,...", us
-- Reply: now, next
--   the number of bookings
--   the text of an error, '' for none
--   the check at which its steps were used up, 0 if they were not
--   of each job that has ended: 1 if it occupied its places until now, else 0
--   of each booking: id, slot, lane
--   of each overdue job, and of each job that never fits: id, slot, lane
-- uses: request, scopes, grants, records, key, tags, queue, line, running, overdue, turn, look

-- Read.
local bookings, looks, delivers, timed = match(ARGV[4], '^(%d+) (%d+) ([01]) ([01])$')
puller.bookings, puller.looks, puller.most_looks = tonumber(bookings), tonumber(looks), tonumber(looks)
puller.delivers, timed = delivers == '1', timed == '1'
local found = read_control(prefix .. 'pulled')
local grants = read_grants({ unpack(ARGV, 5) })
for i = 1, #grants do run_of(grants[i].id, grants[i].start) end
if #grants > 0 then check_line() end

local occupied = {} -- whether each job that has ended occupied its places until now
for i = 1, #grants do occupied[i] = give_back(grants[i].id, grants[i].start, grants[i].cooldowns, timed) and 1 or 0 end
count_moves()
for _, key in pairs(keys) do refit(key) end -- a ledger that is empty now begins anew
if found[3] and found[3] - now > 1000000 then hurry_all(EVERY_TIMER) end -- the clock stepped back
local due_now, due_until = {}, format('%d', now)
local found_due = call('ZRANGEBYSCORE', timers, '-inf', due_until, 'WITHSCORES', 'LIMIT', 0, puller.looks)
for i = 1, #found_due, 2 do
  due_now[#due_now + 1] = {
    name = found_due[i], about = floor(found_due[i + 1] / max(1, floor(lookahead / 4))), rank = i,
    wide = min(2, call('ZCARD', wait_of(found_due[i]))),
  }
end
-- Among timers that are due at about the same time, claims come first, then scope keys with one flow: a lane that has
-- room there then takes its turn under the scope keys that it shares.
table.sort(due_now, function(a, b)
  if a.about ~= b.about then return a.about < b.about end
  if a.wide ~= b.wide then return a.wide < b.wide end
  return a.rank < b.rank
end)
local due_again = puller.delivers and call('ZRANGEBYSCORE', overdues, '-inf', due_until, 'LIMIT', 0, 50) or {}

-- Decide, and write the line on the way: the next decision reads it from Redis.
for i = 1, #due_now do
  end_if_tired()
  -- The remaining timers are older than the ones with a new time: the next pull begins with them.
  if puller.bookings == 0 or puller.looks <= 0 then break end
  local fine, problem = pcall(attempt, due_now[i].name)
  if not fine then
    note_trouble(problem)
    call('ZADD', timers, format('%d', now + 1000000), due_now[i].name) -- the other timers go on
  end
end
for i = 1, #due_again do report_again(due_again[i]) end
forget_shares()

-- Write.
save_keys()
call('SET', prefix .. 'pulled', format('%d', now), 'PX', kept)
if #due_now > 0 or #grants > 0 then expire(jobs, timers, claims, shares, overdues) end
local reply = {
  format('%d', now), format('%d', save_line()), format('%d', #puller.booked / 3), puller.trouble, puller.ended,
  unpack(occupied),
}
for i = 1, #puller.booked do reply[#reply + 1] = puller.booked[i] end
for i = 1, #puller.overdue do reply[#reply + 1] = puller.overdue[i] end
return reply
