-- Purpose: count the units that started in a past interval; change nothing.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] scope key: string, thr:{name}:3:key:<scope>:<key>
-- KEYS[3...] ledgers: sorted set thr:{name}:3:ledger:<scope>:<key>:<window> per limit
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- ARGV[4] from: us before now, where the interval begins (included)
-- ARGV[5] to: us before now, where the interval ends (excluded)
-- ARGV[6] ledger: index of the limit whose ledger is read, 0 = none; a sub-window that
--   overlaps the interval counts whole
-- ARGV[7...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] now: us, the instant of the answer
-- Reply[2] units: what started in the interval, at most one precision too much at either end
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
local from = integer(ARGV[4], 0, 34560000000000)
local to = integer(ARGV[5], 0, 34560000000000)
local index = integer(ARGV[6], 0, 9007199254740992)
if not (time and from and to and index) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local opens, closer, wrong = read_controls(KEYS[1], ARGV[2], ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 2, ARGV, 7, time, 0, opens, closer)
if not calendar then
  return wrong
end

local ledger, now, units = calendar.ledgers[index], calendar.now, 0
if not ledger then
  return { now, 0 }
end
load(ledger, now, 0)
for i = 1, ledger.count do
  local at = ledger.at[i]
  if not ledger.promised[i] and at < now - to and at + ledger.precision > now - from then
    units = units + ledger.amount[i]
  end
end
return { now, units }
