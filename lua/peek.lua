-- Purpose: say what reserve would answer for a new job now; change nothing.
-- KEYS[1...] calendar: for each scope key a string thr:{name}:1:key:<scope>:<key>,
--   then for each of its limits a sorted set thr:{name}:1:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] weight: units, 1..2^53
-- ARGV[3] grace: us after its slot that a booking still counts
-- ARGV[4...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact)
-- Reply[1] now: us, the instant of the answer
-- Reply[2] start: us, the earliest start
-- Reply[3] holder: index of the limit that holds the job back, 0 = none
-- Reply[4] spent: units in the holder's window; 0 without holder
-- Reply[5] booked: units promised in the holder; 0 without holder
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_WEIGHT <limit>, THROTTLE_STATE <what>
-- Cost: O(limits) with room; O(limits x entries) without
-- Expiry: none, nothing is written
-- include: integer
-- include: clock
-- include: read_calendar
-- include: tend
-- include: place
local time = clock(ARGV[1])
local weight = integer(ARGV[2], 1, 9007199254740992)
local grace = integer(ARGV[3], 0, 34560000000000)
if not (time and weight and grace) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local calendar, wrong = read_calendar(KEYS, 1, ARGV, 4, time, grace)
if not calendar then
  return wrong
end
for i = 1, #calendar.ledgers do
  if weight > calendar.ledgers[i].units then
    return redis.error_reply(string.format('THROTTLE_WEIGHT %d', i))
  end
end

tend(calendar)
local start, holder = place(calendar, weight, calendar.now, false)
local ledger = calendar.ledgers[holder] or { spent = 0, booked = 0 }
return { calendar.now, start, holder, ledger.spent, ledger.booked }
