-- Purpose: decide for one job: granted (charged, starts now or within max_wait),
--   booked (a slot, to be asked for again then) or waiting (in line, to be pulled).
--   Idempotent: see nonce.
-- KEYS[1] record: string, thr:{name}:3:job:<id>
-- KEYS[2] control: hash, thr:{name}:3:control
-- KEYS[3] line: hash, thr:{name}:3:line
-- KEYS[4] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[5] ready: sorted set, thr:{name}:3:ready
-- KEYS[6] tags: sorted set, thr:{name}:3:tags
-- KEYS[7] heads: sorted set, thr:{name}:3:heads:<fair key>
-- KEYS[8] lane: sorted set, thr:{name}:3:lane:<lane>
-- KEYS[9...] held: sorted sets, thr:{name}:3:held:<scope>:<key>, as many as the job says;
--   calendar: for each scope key a string thr:{name}:3:key:<scope>:<key>, then for each of
--   its limits a sorted set thr:{name}:3:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- ARGV[4] nonce: names this asking; the same again is answered, not charged, again
-- ARGV[5] ledgers: "keys.windows" names the scope keys and the ledgers of this call, to
--   tell what was booked and charged in others
-- ARGV[6] job: "weight max_wait grace latest lookahead kept plan held": units (1..2^53); us
--   (0..400 days), a start within it is granted; us (0..400 days) after its slot that a
--   booking still counts; us after now that the start may be at most, empty = any; us
--   (0..400 days) that bookings reach ahead; ms (1..2^53) that the line's keys live; 1 =
--   booked, not granted, also where there is room at once; held sets among KEYS, 0..26
-- ARGV[7] lane: the job's lane
-- ARGV[8] id: the job's ID
-- ARGV[9...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] outcome: 1 granted, 2 booked, 3 waiting, 4 cannot start by latest (nothing is held)
-- Reply[2] now: us, the instant of the decision
-- Reply[3] start: us, the granted start, the slot, or the earliest that there would be
-- Reply[4] holder: what held the job back: 0 nothing, the index of the limit, or, behind
--   the limits, of the name that is paused
-- Reply[5] spent: units in the holder's window; 0 without holder
-- Reply[6] booked: units promised in the holder; 0 without holder
-- Reply[7] replayed: 1 if this decision had been made before, else 0
-- Reply[8] next: the lane to pull now, empty = none
-- Reply[9] shadow: index of the limit in shadow that would have held it back, 0 = none
-- Reply[10] would: us, the start it would have had
-- Reply[11] ahead: units before the job in its lane; this and what follows only if waiting
-- Reply[12] line: the same and the units in its fair key's other lanes
-- Reply[13] rivals: fair keys that are ready
-- Reply[14...] per limit spent and booked units
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_WEIGHT <limit>, THROTTLE_STATE <what>,
--   THROTTLE_CONTROLS <what is set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(limits) with room and in line; O(limits x entries) without, lanes O(log jobs)
-- Expiry: record: start + 60 s, in place of another grant's: an hour; ledgers: span + grace + 30 s; the line's keys: kept
-- include: clock
-- include: read_controls
-- include: read_calendar
local record_key, hash, agenda, ready = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local tags, heads, queue = KEYS[6], KEYS[7], KEYS[8]
local time = clock(ARGV[1])
local nonce = string.match(ARGV[4], '^[%w_.-]+$')
local ledgers = string.match(ARGV[5], '^%w+%.%w+$')
local weight, max_wait, grace, latest, lookahead, kept, plan, sets =
  string.match(ARGV[6], '^(%d+) (%d+) (%d+) (%d*) (%d+) (%d+) ([01]) ([12]?%d)$')
local lane, id, names = ARGV[7], ARGV[8], ARGV[2]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
weight, max_wait, grace, latest = tonumber(weight), tonumber(max_wait), tonumber(grace), tonumber(latest)
lookahead, sets = tonumber(lookahead), tonumber(sets)
if not (time and nonce and ledgers and weight and fair) or weight < 1 or weight > 9007199254740992
  or max_wait > 34560000000000 or grace > 34560000000000 or lookahead > 34560000000000
  or tonumber(kept) < 1 or tonumber(kept) > 9007199254740992 or sets > 26 then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end
local opens, closer, wrong = read_controls(KEYS[2], names, ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 9 + sets, ARGV, 9, time, grace, opens, closer)
if not calendar then
  return wrong
end
local held = { unpack(KEYS, 9, 8 + sets) }
local texts = redis.call('HMGET', hash, '/' .. lane, '=' .. id, '@' .. fair, '#' .. fair, '~' .. lane)
local now = calendar.now
local granted = redis.call('GET', record_key)
local at_once = not (granted or texts[1] or texts[2] or calendar.untended or calendar.opens > now) and plan == '0'
  and (sets == 0 or redis.call('EXISTS', unpack(held)) == 0)
for i = 1, #calendar.ledgers do
  local ledger = calendar.ledgers[i]
  if ledger.booked > ledger.units - weight - ledger.spent and not ledger.free then
    if weight > ledger.units and ledger.units > 0 then
      return redis.error_reply(string.format('THROTTLE_WEIGHT %d', i))
    end
    at_once = false
  end
end

-- include: foresee
-- include: enter
-- include: write_calendar
-- include: write_record
if at_once then
  local shadow, would = 0, now
  if calendar.shadows then
    shadow, would = foresee(calendar, weight, now)
  end
  enter(calendar, 's', now, weight)
  wrong = write_calendar(calendar, now)
  if wrong then
    return wrong
  end
  write_record(record_key, now, now, weight, nonce, ledgers)
  return { 1, now, now, 0, 0, 0, 0, '', shadow, would }
end

-- include: read_record
-- include: read_line
-- include: load
-- include: tend
-- include: place
-- include: tell_wait
local line = {
  hash = hash, agenda = agenda, ready = ready, tags = tags, heads = heads, queue = queue,
  lane = lane, fair = fair, texts = texts,
}
wrong = read_line(line)
if wrong then
  return wrong
end
local record
record, wrong = read_record(granted, now)
if wrong then
  return wrong
end
local booking = line.booking
-- A job that had its turn and lost it is before all others of its lane; any other
-- is behind them, and needs no look at the calendar.
local behind = line.jobs > 0 and not booking
if record or latest or not behind then
  tend(calendar)
end
local start, holder, changed, freed = nil, 0, false, false
local scope_keys = string.match(ledgers, '^%w+')
if booking and booking.ledgers == scope_keys and booking.slot + grace >= now then
  if now < booking.slot - max_wait then
    holder = booking.holder
    local ledger = calendar.ledgers[holder] or { spent = 0, booked = 0 }
    if ledger.key then
      load(ledger, now, grace)
    end
    return { 2, now, booking.slot, holder, ledger.spent, ledger.booked, 0, '', 0, booking.slot }
  end
  -- Its time has come: what really started decides, not what is promised.
  enter(calendar, 'b', booking.slot, -booking.weight)
  changed = true
  start, holder = place(calendar, weight, math.max(now, booking.slot), true)
  if start > now + max_wait then
    start = nil
  end
elseif record and record.nonce == nonce and record.ledgers == ledgers and not record.settled then
  -- The answer was lost. A second later the start is no longer this one:
  -- what was charged for it moves to a new start.
  if now - record.start <= 1000000 then
    return { 1, now, record.start, 0, 0, 0, 1, '', 0, record.start }
  end
  enter(calendar, 's', record.start, -record.weight)
  changed, freed = true, true
end

local member = string.format('%d:', weight) .. id
if not start and (not behind or latest) then
  start, holder = place(calendar, weight, now, false)
elseif not start and calendar.opens > now then
  start, holder = calendar.opens, calendar.closer -- as for those before it
end
-- Nor is it before those that one of its scope keys holds.
local contended
for i = 1, start and not (behind or booking) and sets or 0 do
  contended = contended or redis.call('EXISTS', held[i]) == 1 and i
end
behind = behind or contended
local outcome = 3
if start and latest and start - now > latest then
  outcome = 4
elseif start and start <= now + max_wait and not behind and plan == '0' then
  outcome = 1
elseif start and start <= now + lookahead and not behind
  and (booking or redis.call('ZCARD', line.ready) == 0) then
  outcome = 2
end
local full = calendar.ledgers[holder] or { spent = 0, booked = 0 }
local reply = { outcome, now, start or now, holder, full.spent, full.booked, 0, '', 0, start or now }
local arrival = line.jobs > 0 and tonumber(redis.call('ZSCORE', line.queue, member) or nil)
local stands = arrival and true
if outcome == 3 then
  local ahead = line.units
  if arrival then
    -- How far it has come is not counted for each job: the lane's jobs before it,
    -- at the lane's mean weight.
    local before = redis.call('ZCOUNT', line.queue, '-inf', string.format('(%d', arrival))
    ahead = math.floor(before * line.units / line.jobs)
  elseif booking then
    arrival, ahead = booking.arrival, 0
  else
    local last = redis.call('ZRANGE', line.queue, '-1', '-1', 'WITHSCORES')
    arrival = math.max(now, tonumber(last[2] or 0) + 1)
  end
  tell_wait(reply, line, calendar, ahead)
end

-- include: promise
-- include: unpromise
-- include: make_room
-- include: hold
-- include: enlist
-- include: write_line
-- include: leave
-- include: join
-- include: next_lane
if outcome < 3 then
  if outcome == 1 and calendar.shadows then
    reply[9], reply[10] = foresee(calendar, weight, start)
  end
  enter(calendar, outcome == 1 and 's' or 'b', start, weight)
  changed = true
end
if changed then
  wrong = write_calendar(calendar, outcome < 3 and start or now)
  if wrong then
    return wrong
  end
end
if freed then
  make_room(line, names, now)
end
if outcome == 1 then
  write_record(record_key, now, start, weight, nonce, ledgers, granted and '3600000')
elseif granted and plan == '0' and not string.match(granted, ' settled$') then
  -- It is answered no more, also if the clock steps back, nor settled.
  redis.call('SET', record_key, granted .. ' settled', 'PX', '3600000')
end
if booking then
  unpromise(line.hash, line.agenda, id, booking.weight, booking.lane)
  line.promised = tonumber(redis.call('HGET', line.hash, '#' .. fair) or 0)
end
if outcome == 2 then
  promise(line, id, start, weight, holder, scope_keys, booking and booking.arrival or now, kept)
elseif outcome == 3 and not stands then
  if contended then
    local tag = math.max(tonumber(redis.call('ZSCORE', line.tags, '*') or 0),
      tonumber(redis.call('ZSCORE', line.tags, '+' .. fair) or 0))
    hold(line, held, contended, tag, arrival, nil, now, kept)
    elect(line, kept)
  end
  join(line, member, weight, arrival, kept)
elseif outcome == 3 then
  enlist(line, kept)
  write_line(line, kept)
  redis.call('PEXPIRE', line.queue, kept)
elseif stands then
  leave(line, member, weight, kept)
end
if outcome > 2 or outcome == 1 and booking then
  reply[8] = next_lane(line.hash, line.agenda, line.ready, now)
end
return reply
