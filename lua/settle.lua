-- Purpose: correct what a granted job was charged to what it really took, in place, at
--   its start, in all its ledgers, once for each grant.
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
-- ARGV[4] nonce: of the grant
-- ARGV[5] ledgers: "keys granted.windows" names the scope keys of this call, and the scope
--   keys and the ledgers of the grant
-- ARGV[6] job: "start weight actual grace kept within share": us; units charged (1..2^53); units
--   taken (0..2^53); us (0..400 days) after its slot that a booking still counts; ms
--   (1..2^53) that the line's keys live; us (0..400 days) after the start that it can be
--   settled; of its fair key (1..2^53)
-- ARGV[7] lane: the job's lane
-- ARGV[8] id: the job's ID
-- ARGV[9...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] done: 1 if the charge is what was taken now, 0 if it had been settled, was
--   superseded by another grant, was charged under other scope keys, or is too old
-- Reply[2] now: us, the instant of the call
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is
--   set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(limits)
-- Expiry: record: start + within; ledgers: span + grace + 30 s; the line's keys: kept
-- include: clock
-- include: read_controls
-- include: read_calendar
-- include: bind_line
-- include: read_line
-- include: tend
-- include: enter
-- include: refund
-- include: write_calendar
-- include: make_room
-- include: enlist
-- include: write_line
local record_key = KEYS[1]
local time = clock(ARGV[1])
local nonce = string.match(ARGV[4], '^[%w_.-]+$')
local keys, ledgers = string.match(ARGV[5], '^(%w+) (%w+%.%w+)$')
local start, weight, actual, grace, kept, within, share =
  string.match(ARGV[6], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
local lane, id, names = ARGV[7], ARGV[8], ARGV[2]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
start, weight, actual = tonumber(start), tonumber(weight), tonumber(actual)
grace, within, share = tonumber(grace), tonumber(within), tonumber(share)
if not (time and nonce and keys and weight and fair) or start > 9007199254740992 or weight < 1
  or weight > 9007199254740992 or actual > 9007199254740992 or grace > 34560000000000
  or tonumber(kept) < 1 or tonumber(kept) > 9007199254740992 or within > 34560000000000
  or share < 1 or share > 9007199254740992 then
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

-- While the grant's record is there, it says what was charged; later the caller does.
local text = redis.call('GET', record_key)
if text then
  local at, units, known, others, settled = string.match(text, '^(%d+) (%d+) (%S+) (%S+) ?(%a*)$')
  if not at then
    return redis.error_reply('THROTTLE_STATE record')
  elseif known ~= nonce or others ~= ledgers or settled ~= '' then
    return { 0, now }
  end
  start, weight = tonumber(at), tonumber(units)
end
if start + within < now or string.match(ledgers, '^%w+') ~= keys then
  return { 0, now }
end
tend(calendar)
enter(calendar, 's', start, actual - weight)
wrong = write_calendar(calendar, start)
if wrong then
  return wrong
end
redis.call('SET', record_key, string.format('%d %d %s %s settled', start, actual, nonce, ledgers),
  'PX', string.format('%d', math.ceil((start + within - now) / 1000) + 1))
refund(line, (weight - actual) / share)
if actual >= weight then
  return { 1, now }
end
-- What waited for this room need not wait any longer.
make_room(line, names, now)
if line.jobs > 0 and redis.call('ZCARD', line.queue) > 0 then
  enlist(line, kept)
  write_line(line, kept)
end
return { 1, now }
