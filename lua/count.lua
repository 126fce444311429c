-- Purpose: count the units that started in a past interval; change nothing.
-- KEYS[1] scope key: string, thr:{name}:2:key:<scope>:<key>
-- KEYS[2] ledger: sorted set, thr:{name}:2:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] from: us before now, where the interval begins (included)
-- ARGV[3] to: us before now, where the interval ends (excluded)
-- ARGV[4...] limits of KEYS in order: 1, then "units window precision" of the ledger;
--   a sub-window that overlaps the interval counts whole
-- Reply[1] now: us, the instant of the answer
-- Reply[2] units: what started in the interval, at most one precision too much at either end
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(entries)
-- Expiry: none, nothing is written
-- include: integer
-- include: clock
-- include: read_calendar
-- include: load
local time = clock(ARGV[1])
local from = integer(ARGV[2], 0, 34560000000000)
local to = integer(ARGV[3], 0, 34560000000000)
if not (time and from and to) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local calendar, wrong = read_calendar(KEYS, 1, ARGV, 4, time, 0)
if not calendar then
  return wrong
end

local ledger, now, units = calendar.ledgers[1], calendar.now, 0
load(ledger, now, 0)
for i = 1, ledger.count do
  local at = ledger.at[i]
  if not ledger.promised[i] and at < now - to and at + ledger.precision > now - from then
    units = units + ledger.amount[i]
  end
end
return { now, units }
