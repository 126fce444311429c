-- Purpose: say what reserve would answer for a new job now; change nothing.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] line: hash, thr:{name}:3:line
-- KEYS[3] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[4] ready: sorted set, thr:{name}:3:ready
-- KEYS[5] tags: sorted set, thr:{name}:3:tags
-- KEYS[6] heads: sorted set, thr:{name}:3:heads:<fair key>
-- KEYS[7] lane: sorted set, thr:{name}:3:lane:<lane>
-- KEYS[8...] held: sorted sets, thr:{name}:3:held:<scope>:<key>, as many as ARGV[9] says;
--   calendar: for each scope key a string thr:{name}:3:key:<scope>:<key>, then for each of
--   its limits a sorted set thr:{name}:3:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- ARGV[4] weight: units, 1..2^53
-- ARGV[5] grace: us after its slot that a booking still counts
-- ARGV[6] max wait: us, a start within it would be granted
-- ARGV[7] lookahead: us that bookings reach ahead
-- ARGV[8] lane: the job's lane
-- ARGV[9] held: sets among KEYS, 0..26
-- ARGV[10...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] outcome: 1 granted, 2 booked, 3 waiting
-- Reply[2] now: us, the instant of the answer
-- Reply[3] start: us, the earliest start that there is
-- Reply[4] holder: what holds the job back: 0 nothing, the index of the limit, or,
--   behind the limits, of the name that is paused
-- Reply[5] spent: units in the holder's window; 0 without holder
-- Reply[6] booked: units promised in the holder; 0 without holder
-- Reply[7] replayed: 0
-- Reply[8] next: empty
-- Reply[9] shadow: index of the limit in shadow that would hold it back, 0 = none
-- Reply[10] would: us, the start it would have
-- Reply[11] ahead: units that wait in its lane; this and what follows only if waiting
-- Reply[12] line: units that wait in all its fair key's lanes
-- Reply[13] rivals: fair keys that are ready
-- Reply[14...] per limit spent and booked units
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_WEIGHT <limit>, THROTTLE_STATE <what>,
--   THROTTLE_CONTROLS <what is set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(limits) with room; O(limits x entries) without
-- Expiry: none, nothing is written
-- include: integer
-- include: clock
-- include: read_controls
-- include: read_calendar
-- include: bind_line
-- include: read_line
-- include: tend
-- include: place
-- include: tell_wait
-- include: foresee
local time = clock(ARGV[1])
local weight = integer(ARGV[4], 1, 9007199254740992)
local grace = integer(ARGV[5], 0, 34560000000000)
local max_wait = integer(ARGV[6], 0, 34560000000000)
local lookahead = integer(ARGV[7], 0, 34560000000000)
local lane, sets = ARGV[8], integer(ARGV[9], 0, 26)
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
if not (time and weight and grace and max_wait and lookahead and fair and sets) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local opens, closer, wrong = read_controls(KEYS[1], ARGV[2], ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 8 + sets, ARGV, 10, time, grace, opens, closer)
if not calendar then
  return wrong
end
local held = { unpack(KEYS, 8, 7 + sets) }
local line = bind_line(KEYS, 2, lane, fair, '')
wrong = read_line(line)
if wrong then
  return wrong
end
for i = 1, #calendar.ledgers do
  local ledger = calendar.ledgers[i]
  if weight > ledger.units and ledger.units > 0 and not ledger.free then
    return redis.error_reply(string.format('THROTTLE_WEIGHT %d', i))
  end
end

tend(calendar)
local now = calendar.now
local start, holder = place(calendar, weight, now, false)
local behind = line.jobs > 0
for i = 1, #held do
  behind = behind or redis.call('EXISTS', held[i]) == 1
end
local outcome = 3
if not behind and start <= now + max_wait then
  outcome = 1
elseif not behind and start <= now + lookahead and redis.call('ZCARD', line.ready) == 0 then
  outcome = 2
end
local full = calendar.ledgers[holder] or { spent = 0, booked = 0 }
local reply = { outcome, now, start, holder, full.spent, full.booked, 0, '', 0, start }
if outcome == 1 and calendar.shadows then
  reply[9], reply[10] = foresee(calendar, weight, start)
end
if outcome == 3 then
  tell_wait(reply, line, calendar, line.units)
end
return reply
