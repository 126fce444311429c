-- Purpose: give a reservation back whose job has not started: a place in
--   line, a booking, or the caller's own grant for a start still ahead. A grant can be
--   kept as a booking at its start, so that the job finds its place again.
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
-- ARGV[4] nonce: of the grant; empty gives back bookings and places in line only
-- ARGV[5] ledgers: "keys.windows" names the scope keys and the ledgers of this call
-- ARGV[6] job: "weight keep grace kept share within": units (1..2^53); 1 turns a grant back into
--   a booking, 0 gives everything back; us (0..400 days) after its slot that a booking
--   still counts; ms (1..2^53) that the line's keys live; of its fair key (1..2^53); us (0..400
--   days) after the start that a grant can be settled
-- ARGV[7] lane: the job's lane
-- ARGV[8] id: the job's ID
-- ARGV[9...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] done: 1 if something was given back or kept, 0 if there was nothing
-- Reply[2] now: us, the instant of the call
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is
--   set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(limits)
-- Expiry: record: start + within; ledgers: span + grace + 30 s; the line's keys: kept
-- include: clock
-- include: read_controls
-- include: read_calendar
-- include: read_record
-- include: bind_line
-- include: read_line
-- include: tend
-- include: enter
-- include: write_calendar
-- include: promise
-- include: unpromise
-- include: leave
-- include: refund
-- include: elect
-- include: make_room
-- include: enlist
-- include: write_line
local record_key = KEYS[1]
local time = clock(ARGV[1])
local nonce = string.match(ARGV[4], '^[%w_.-]*$')
local ledgers = string.match(ARGV[5], '^%w+%.%w+$')
local weight, keep, grace, kept, share, within = string.match(ARGV[6], '^(%d+) ([01]) (%d+) (%d+) (%d+) (%d+)$')
local lane, id, names = ARGV[7], ARGV[8], ARGV[2]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
weight, grace, share, within = tonumber(weight), tonumber(grace), tonumber(share), tonumber(within)
if not (time and nonce and ledgers and weight and fair) or weight < 1 or weight > 9007199254740992
  or grace > 34560000000000 or tonumber(kept) < 1 or tonumber(kept) > 9007199254740992
  or share < 1 or share > 9007199254740992 or within > 34560000000000 then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end
local opens, closer, wrong = read_controls(KEYS[2], names, ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 9, ARGV, 9, time, grace, opens, closer)
if not calendar then
  return wrong
end
local line = bind_line(KEYS, 3, lane, fair, id)
wrong = read_line(line)
if wrong then
  return wrong
end
local now = calendar.now
local record
record, wrong = read_record(redis.call('GET', record_key), now)
if wrong then
  return wrong
end

local booking = line.booking
local scope_keys = string.match(ledgers, '^%w+')
local holds = booking and booking.ledgers == scope_keys and booking.slot + grace >= now
if holds and keep == '1' then
  return { 1, now }
end
local granted = not holds and record and record.nonce == nonce and record.ledgers == ledgers
  and record.start > now and not record.settled
local member = string.format('%d:', weight) .. id
local stands = keep == '0' and line.jobs > 0 and redis.call('ZSCORE', line.queue, member)
if not (booking or granted or stands) then
  return { 0, now }
end
tend(calendar)
if holds then
  enter(calendar, 'b', booking.slot, -booking.weight)
elseif granted then
  enter(calendar, 's', record.start, -record.weight)
  if keep == '1' then
    enter(calendar, 'b', record.start, record.weight)
  end
end
if holds or granted then
  wrong = write_calendar(calendar, granted and record.start or now)
  if wrong then
    return wrong
  end
end
if granted then
  -- What is given back is not settled any more.
  redis.call('SET', record_key, string.format('%d 0 %s %s settled', record.start, nonce, ledgers),
    'PX', string.format('%d', math.ceil((record.start + within - now) / 1000) + 1))
end
if booking and (granted or keep == '0') then
  unpromise(line.hash, line.agenda, id, booking.weight, booking.lane)
  line.promised = tonumber(redis.call('HGET', line.hash, '#' .. fair) or 0)
end
if granted and keep == '1' then
  promise(line, id, record.start, record.weight, 0, scope_keys, now, kept)
elseif stands then
  leave(line, member, weight, kept)
end
if booking and keep == '0' and booking.lane == lane then
  refund(line, booking.weight / share)
end
if holds or stands then
  -- What waited for this room, or behind this job, need not wait any longer.
  make_room(line, names, now)
  if line.jobs > 0 and redis.call('ZCARD', line.queue) > 0 then
    enlist(line, kept)
  else
    elect(line, kept)
  end
  write_line(line, kept)
end
return { (holds or granted or stands) and 1 or 0, now }
