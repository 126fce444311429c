-- Purpose: tell what is spent and booked on one scope key, entry by entry, and until when
--   it is paused, for a forecast; change nothing.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] scope key: string, thr:{name}:3:key:<scope>:<key>
-- KEYS[3...] ledgers: sorted set thr:{name}:3:ledger:<scope>:<key>:<window> per limit
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- ARGV[4] grace: us after its slot that a booking still counts
-- ARGV[5...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] now: us, the instant of the answer
-- Reply[2] opens: us, when its pause ends; not after now if it is not paused
-- Reply[3...] per limit its span (us), its precision (us), how many entries it has, and
--   of each entry its sub-window (us) and units
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is
--   set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(entries)
-- Expiry: none, nothing is written
-- include: integer
-- include: clock
-- include: read_controls
-- include: read_calendar
-- include: load
local time = clock(ARGV[1])
local grace = integer(ARGV[4], 0, 34560000000000)
if not (time and grace) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local opens, closer, wrong = read_controls(KEYS[1], ARGV[2], ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 2, ARGV, 5, time, grace, opens, closer)
if not calendar then
  return wrong
end

local reply = { calendar.now, opens }
for _, ledger in ipairs(calendar.ledgers) do
  load(ledger, calendar.now, grace)
  reply[#reply + 1] = ledger.span
  reply[#reply + 1] = ledger.precision
  reply[#reply + 1] = ledger.count
  for i = 1, ledger.count do
    reply[#reply + 1] = ledger.at[i]
    reply[#reply + 1] = ledger.amount[i]
  end
end
return reply
