-- Purpose: give a reservation back whose job has not started: a booking, or the
--   caller's own grant for a start still ahead. A grant can be kept as a booking
--   at its start, so that the job finds its place again.
-- KEYS[1] record: string, thr:{name}:1:job:<id>
-- KEYS[2...] calendar: for each scope key a string thr:{name}:1:key:<scope>:<key>,
--   then for each of its limits a sorted set thr:{name}:1:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] nonce: of the grant; empty gives back bookings only
-- ARGV[3] keep: 1 turns a grant back into a booking, 0 gives everything back
-- ARGV[4] grace: us after its slot that a booking still counts
-- ARGV[5] ledgers: names the ledgers of this call
-- ARGV[6...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact)
-- Reply[1] done: 1 if something was given back or kept, 0 if there was nothing
-- Reply[2] now: us, the instant of the call
-- Reply[3] start: us, the start or slot that was held; 0 if there was none
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(limits)
-- Expiry: record: deleted, or start + grace where kept; ledgers: span + grace + 30 s
-- include: integer
-- include: clock
-- include: read_calendar
-- include: read_record
-- include: tend
-- include: enter
-- include: write_calendar
-- include: write_record
local record_key = KEYS[1]
local time = clock(ARGV[1])
local nonce = string.match(ARGV[2], '^[%w_.-]*$')
local keep = integer(ARGV[3], 0, 1)
local grace = integer(ARGV[4], 0, 34560000000000)
local ledgers = string.match(ARGV[5], '^%w+$')
if not (time and nonce and keep and grace and ledgers) then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end
local calendar, wrong = read_calendar(KEYS, 2, ARGV, 6, time, grace)
if not calendar then
  return wrong
end
local now = calendar.now
local record
record, wrong = read_record(redis.call('GET', record_key), now, grace, ledgers)
if wrong then
  return wrong
end

local granted = record and record.kind == 'g'
if not record or granted and (record.detail ~= nonce or record.start <= now) then
  return { 0, now, 0 }
end
tend(calendar)
if not granted and keep == 1 then
  return { 1, now, record.start }
end
enter(calendar, granted and 's' or 'b', record.start, -record.weight)
if keep == 1 then
  enter(calendar, 'b', record.start, record.weight)
end
wrong = write_calendar(calendar, record.start)
if wrong then
  return wrong
end
if keep == 1 then
  write_record(record_key, now, grace, 'b', record.start, record.weight, '0', ledgers)
else
  redis.call('DEL', record_key)
end
return { 1, now, record.start }
