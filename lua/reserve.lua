-- Purpose: decide for one job: granted (charged, starts now or within max_wait)
--   or booked (a slot, to be asked for again then). Idempotent: see nonce.
-- KEYS[1] record: string, thr:{name}:1:job:<id>
-- KEYS[2...] calendar: for each scope key a string thr:{name}:1:key:<scope>:<key>,
--   then for each of its limits a sorted set thr:{name}:1:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] nonce: names this asking; the same again is answered, not charged, again
-- ARGV[3] ledgers: names the ledgers of this call, to tell what was booked in others
-- ARGV[4] job: "weight max_wait grace latest": units (1..2^53); us (0..400 days), a start
--   within it is granted; us (0..400 days) after its slot that a booking still counts;
--   us after now that the start may be at most, empty = any
-- ARGV[5...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact)
-- Reply[1] outcome: 1 granted, 2 booked, 3 cannot start by latest (nothing is held)
-- Reply[2] now: us, the instant of the decision
-- Reply[3] start: us, the granted start, the slot, or the start that would be too late
-- Reply[4] holder: index of the limit that held the job back, 0 = none
-- Reply[5] spent: units in the holder's window; 0 without holder
-- Reply[6] booked: units promised in the holder; 0 without holder
-- Reply[7] replayed: 1 if this decision had been made before, else 0
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_WEIGHT <limit>, THROTTLE_STATE <what>
-- Cost: O(limits) with room; O(limits x entries) without
-- Expiry: record: start + grace (booked), start + 60 s (granted); ledgers: span + grace + 30 s
-- include: clock
-- include: read_calendar
-- include: read_record
local record_key = KEYS[1]
local time = clock(ARGV[1])
local nonce = string.match(ARGV[2], '^[%w_.-]+$')
local ledgers = string.match(ARGV[3], '^%w+$')
local weight, max_wait, grace, latest = string.match(ARGV[4], '^(%d+) (%d+) (%d+) (%d*)$')
weight, max_wait, grace, latest = tonumber(weight), tonumber(max_wait), tonumber(grace), tonumber(latest)
if not (time and nonce and ledgers and weight) or weight < 1 or weight > 9007199254740992
  or max_wait > 34560000000000 or grace > 34560000000000 then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end
local calendar, wrong = read_calendar(KEYS, 2, ARGV, 5, time, grace)
if not calendar then
  return wrong
end
local now = calendar.now
local record
record, wrong = read_record(redis.call('GET', record_key), now, grace, ledgers)
if wrong then
  return wrong
end
local at_once = not (record or calendar.untended)
for i = 1, #calendar.ledgers do
  local ledger = calendar.ledgers[i]
  if weight > ledger.units then
    return redis.error_reply(string.format('THROTTLE_WEIGHT %d', i))
  elseif ledger.booked > ledger.units - weight - ledger.spent then
    at_once = false
  end
end

-- include: enter
-- include: write_calendar
-- include: write_record
local start, holder, taken = now, 0, false
if not at_once then
  -- include: load
  -- include: tend
  -- include: place
  tend(calendar)
  start = nil
  if record and record.kind == 'g' then
    if record.detail == nonce then
      -- The answer was lost. A second later the start is no longer this one:
      -- what was charged for it moves to a new start.
      if now - record.start <= 1000000 then
        return { 1, now, record.start, 0, 0, 0, 1 }
      end
      enter(calendar, 's', record.start, -record.weight)
      taken = true
    end
  elseif record then
    if now < record.start - max_wait then
      holder = tonumber(record.detail)
      local ledger = calendar.ledgers[holder] or { spent = 0, booked = 0 }
      if ledger.key then
        load(ledger, now, grace)
      end
      return { 2, now, record.start, holder, ledger.spent, ledger.booked, 0 }
    end
    -- Its time has come: what really started decides, not what is promised.
    enter(calendar, 'b', record.start, -record.weight)
    taken = true
    start, holder = place(calendar, weight, math.max(now, record.start), true)
    if start > now + max_wait then
      start = nil
    end
  end
  if not start then
    start, holder = place(calendar, weight, now, false)
  end
end

local outcome, kind, detail = 1, 's', nonce
if start > now + max_wait then
  outcome, kind, detail = 2, 'b', string.format('%d', holder)
end
if latest and start - now > latest then
  outcome = 3
end
local held = calendar.ledgers[holder]
local reply = { outcome, now, start, holder, held and held.spent or 0, held and held.booked or 0, 0 }
if outcome ~= 3 then
  enter(calendar, kind, start, weight)
elseif not taken then
  return reply
end
wrong = write_calendar(calendar, start)
if wrong then
  return wrong
end
if outcome == 3 then
  redis.call('DEL', record_key)
else
  write_record(record_key, now, grace, outcome == 1 and 'g' or 'b', start, weight, detail, ledgers)
end
return reply
