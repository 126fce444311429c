-- Purpose: tell all that is known of one job and of the limits it meets; change nothing.
-- KEYS[1] record: string, thr:{name}:3:job:<id>
-- KEYS[2] control: hash, thr:{name}:3:control
-- KEYS[3] line: hash, thr:{name}:3:line
-- KEYS[4] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[5] ready: sorted set, thr:{name}:3:ready
-- KEYS[6] tags: sorted set, thr:{name}:3:tags
-- KEYS[7] heads: sorted set, thr:{name}:3:heads:<fair key>
-- KEYS[8] lane: sorted set, thr:{name}:3:lane:<lane>
-- KEYS[9...] calendar: for each scope key a string thr:{name}:3:key:<scope>:<key>,
--   then for each of its limits a sorted set thr:{name}:3:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- ARGV[4] job: "weight grace": units (1..2^53); us (0..400 days) after its slot that a
--   booking still counts
-- ARGV[5] lane: the job's lane
-- ARGV[6] id: the job's ID
-- ARGV[7...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] now: us, the instant of the answer
-- Reply[2] closer: the index of the limit of 0, or, behind the limits, of the name that is
--   paused the longest; 0 = none
-- Reply[3] opens: us, until when
-- Reply[4] granted: us, the start of its grant; 0 = none is known
-- Reply[5] charged: units, of its grant
-- Reply[6] settled: 1 if its grant is settled
-- Reply[7] slot: us; 0 = it is not booked
-- Reply[8] holder: what held it back when it was booked, as in reserve
-- Reply[9] arrival: us, since when it is in line; 0 = it is not
-- Reply[10] before: jobs before it in its lane
-- Reply[11] jobs: in its lane
-- Reply[12] units: in its lane
-- Reply[13] aside: us, until when its lane is set aside; 0 = it is not
-- Reply[14...] per limit spent, booked, and when one more unit may start (us; 0 = never)
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is
--   set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(limits x entries + log jobs)
-- Expiry: none, nothing is written
-- include: clock
-- include: aside_until
-- include: read_controls
-- include: read_calendar
-- include: bind_line
-- include: read_line
-- include: load
-- include: earliest
local time = clock(ARGV[1])
local weight, grace = string.match(ARGV[4], '^(%d+) (%d+)$')
local lane, id = ARGV[5], ARGV[6]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
weight, grace = tonumber(weight), tonumber(grace)
if not (time and weight and fair) or weight < 1 or weight > 9007199254740992 or grace > 34560000000000 then
  return redis.error_reply('THROTTLE_ARGUMENT number or lane')
end
local opens, closer, wrong = read_controls(KEYS[2], ARGV[2], ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 9, ARGV, 7, time, grace, opens, closer)
if not calendar then
  return wrong
end
local line = bind_line(KEYS, 3, lane, fair, id)
wrong = read_line(line)
if wrong then
  return wrong
end
local now, record = calendar.now, redis.call('GET', KEYS[1])

local granted, charged, settled = 0, 0, 0
if record then
  local at, units, known = string.match(record, '^(%d+) (%d+) %S+ %S+ ?(%a*)$')
  if not at then
    return redis.error_reply('THROTTLE_STATE record')
  end
  granted, charged, settled = tonumber(at), tonumber(units), known == 'settled' and 1 or 0
end
local booking = line.booking or { slot = 0, holder = 0 }
local arrival, before = 0, 0
if line.jobs > 0 then
  local member = string.format('%d:', weight) .. id
  arrival = tonumber(redis.call('ZSCORE', line.queue, member) or 0)
  before = redis.call('ZRANK', line.queue, member) or 0
end
local reply = {
  now, calendar.opens > now and calendar.closer or 0, calendar.opens, granted, charged, settled, booking.slot, booking.holder,
  arrival, before, line.jobs, line.units, (aside_until(line.hash, line.agenda, lane)),
}
for i = 1, #calendar.ledgers do
  local ledger = calendar.ledgers[i]
  load(ledger, now, grace)
  reply[#reply + 1] = ledger.spent
  reply[#reply + 1] = ledger.booked
  reply[#reply + 1] = ledger.units > 0 and earliest(ledger, calendar, 1, now, false) or 0
end
return reply
