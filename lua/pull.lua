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
--   which check of its steps ended the pull, 0 if none did
--   of each job that has ended: 1 if it occupied its places until now, else 0
--   of each booking: id, slot, lane
--   of each overdue job, and of each job that never fits: id, slot, lane
-- uses: request, scopes, records

-- Read.
local bookings, looks, delivers, timed = match(ARGV[4], '^(%d+) (%d+) ([01]) ([01])$')
delivers, timed = delivers == '1', timed == '1'
local due_until, pulled = format('%d', now), prefix .. 'pulled'
local last_pull = read_control(pulled)[3]
local stepped_back = last_pull and last_pull - now > 1000000
local due_again = delivers and call('ZRANGEBYSCORE', overdues, '-inf', due_until, 'LIMIT', 0, 50) or {}

-- Most pulls find no job that has ended and no timer that is due. They need none of the includes below.
local next_timer = next_look()
if #ARGV == 4 and not stepped_back and #due_again == 0 and (next_timer == 0 or next_timer > now) then
  call('SET', pulled, due_until, 'PX', kept)
  return { due_until, format('%d', next_timer), '0', '', '0' }
end

-- uses: grants, key, tags, queue, line, running, overdue, turn, look
puller.bookings, puller.looks, puller.most_looks = tonumber(bookings), tonumber(looks), tonumber(looks)
puller.delivers = delivers
local ended = read_grants({ unpack(ARGV, 5) })
for i = 1, #ended do run_of(ended[i].id, ended[i].start) end
if #ended > 0 then check_line() end

local occupied = {} -- whether each job that has ended occupied its places until now
for i = 1, #ended do occupied[i] = give_back(ended[i].id, ended[i].start, ended[i].cooldowns, timed) and 1 or 0 end
count_moves()
for _, key in pairs(keys) do refit(key) end -- a ledger that is empty now begins anew
if stepped_back then hurry_all(EVERY_TIMER) end
local due_now = {}
local found_due = call('ZRANGEBYSCORE', timers, '-inf', due_until, 'WITHSCORES', 'LIMIT', 0, puller.looks)
for i = 1, #found_due, 2 do
  due_now[#due_now + 1] = {
    name = found_due[i], at = tonumber(found_due[i + 1]), rank = i,
    about = floor(found_due[i + 1] / max(1, floor(lookahead / 4))),
    wide = min(2, call('ZCARD', wait_of(found_due[i]))),
  }
end
-- Among timers that are due at about the same time, claims come first, then scope keys with one flow. So a lane that
-- has room under a scope key of its own takes its turn afterwards, under a scope key that it shares with other flows.
table.sort(due_now, function(a, b)
  if a.about ~= b.about then return a.about < b.about end
  if a.wide ~= b.wide then return a.wide < b.wide end
  return a.rank < b.rank
end)

-- Decide, and write the line on the way: the next decision reads it from Redis.
for i = 1, #due_now do
  end_if_tired()
  -- The next pull begins with the remaining timers, since each handled timer now has a later time than they.
  if puller.bookings == 0 or puller.looks <= 0 then break end
  local fine, problem = pcall(attempt, due_now[i].name, due_now[i].at)
  if not fine then
    note_trouble(problem)
    call('ZADD', timers, format('%d', now + 1000000), due_now[i].name) -- the other timers go on
  end
end
for i = 1, #due_again do report_again(due_again[i]) end
if #due_now + #due_again > 0 then forget_shares() end

-- Write.
save_keys()
call('SET', pulled, due_until, 'PX', kept)
if #due_now > 0 or #ended > 0 then expire(jobs, timers, claims, shares, overdues) end
local reply = {
  due_until, format('%d', save_line()), format('%d', #puller.booked / 3), puller.trouble, puller.ended,
  unpack(occupied),
}
for i = 1, #puller.booked do reply[#reply + 1] = puller.booked[i] end
for i = 1, #puller.overdue do reply[#reply + 1] = puller.overdue[i] end
return reply
