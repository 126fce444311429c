-- Purpose: say what reserve would answer for a new job now; change nothing.
-- KEYS[1] line: hash, thr:{name}:2:line
-- KEYS[2] agenda: sorted set, thr:{name}:2:agenda
-- KEYS[3] ready: sorted set, thr:{name}:2:ready
-- KEYS[4] tags: sorted set, thr:{name}:2:tags
-- KEYS[5] heads: sorted set, thr:{name}:2:heads:<fair key>
-- KEYS[6] lane: sorted set, thr:{name}:2:lane:<lane>
-- KEYS[7...] calendar: for each scope key a string thr:{name}:2:key:<scope>:<key>,
--   then for each of its limits a sorted set thr:{name}:2:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] weight: units, 1..2^53
-- ARGV[3] grace: us after its slot that a booking still counts
-- ARGV[4] max wait: us, a start within it would be granted
-- ARGV[5] lookahead: us that bookings reach ahead
-- ARGV[6] lane: the job's lane
-- ARGV[7...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact)
-- Reply[1] outcome: 1 granted, 2 booked, 3 waiting
-- Reply[2] now: us, the instant of the answer
-- Reply[3] start: us, the earliest start that there is
-- Reply[4] holder: index of the limit that holds the job back, 0 = none
-- Reply[5] spent: units in the holder's window; 0 without holder
-- Reply[6] booked: units promised in the holder; 0 without holder
-- Reply[7] replayed: 0
-- Reply[8] next: empty
-- Reply[9] ahead: units that wait in its lane; this and what follows only if waiting
-- Reply[10] line: units that wait in all its fair key's lanes
-- Reply[11] rivals: fair keys that are ready
-- Reply[12...] per limit spent and booked units
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_WEIGHT <limit>, THROTTLE_STATE <what>
-- Cost: O(limits) with room; O(limits x entries) without
-- Expiry: none, nothing is written
-- include: integer
-- include: clock
-- include: read_calendar
-- include: bind_line
-- include: read_line
-- include: tend
-- include: place
-- include: tell_wait
local time = clock(ARGV[1])
local weight = integer(ARGV[2], 1, 9007199254740992)
local grace = integer(ARGV[3], 0, 34560000000000)
local max_wait = integer(ARGV[4], 0, 34560000000000)
local lookahead = integer(ARGV[5], 0, 34560000000000)
local lane = ARGV[6]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
if not (time and weight and grace and max_wait and lookahead and fair) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local calendar, wrong = read_calendar(KEYS, 7, ARGV, 7, time, grace)
if not calendar then
  return wrong
end
local line = bind_line(KEYS, 1, lane, fair, '')
wrong = read_line(line)
if wrong then
  return wrong
end
for i = 1, #calendar.ledgers do
  if weight > calendar.ledgers[i].units then
    return redis.error_reply(string.format('THROTTLE_WEIGHT %d', i))
  end
end

tend(calendar)
local now = calendar.now
local start, holder = place(calendar, weight, now, false)
local outcome = 3
if line.jobs == 0 and start <= now + max_wait then
  outcome = 1
elseif line.jobs == 0 and start <= now + lookahead and redis.call('ZCARD', line.ready) == 0 then
  outcome = 2
end
local held = calendar.ledgers[holder] or { spent = 0, booked = 0 }
local reply = { outcome, now, start, holder, held.spent, held.booked, 0, '' }
if outcome == 3 then
  tell_wait(reply, line, calendar, line.units)
end
return reply
