-- Purpose: book the jobs at the head of one lane, in order, while it is its fair
--   key's turn and they can be placed within the lookahead; else set the lane aside
--   until then, held by the scope key that has no room if others share it. A lane whose
--   time has come is put back among the eligible.
-- KEYS[1] control: hash, thr:{name}:3:control
-- KEYS[2] line: hash, thr:{name}:3:line
-- KEYS[3] agenda: sorted set, thr:{name}:3:agenda
-- KEYS[4] ready: sorted set, thr:{name}:3:ready
-- KEYS[5] tags: sorted set, thr:{name}:3:tags
-- KEYS[6] heads: sorted set, thr:{name}:3:heads:<fair key>
-- KEYS[7] lane: sorted set, thr:{name}:3:lane:<lane>
-- KEYS[8...] held: sorted sets, thr:{name}:3:held:<scope>:<key>, as many as the reach says;
--   calendar: for each scope key a string thr:{name}:3:key:<scope>:<key>, then for each of
--   its limits a sorted set thr:{name}:3:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- ARGV[4] lane: its name
-- ARGV[5] ledgers: "keys" names the scope keys of this call
-- ARGV[6] reach: "grace lookahead kept share most recall held": us (0..400 days) after its slot
--   that a booking still counts; us (0..400 days) that bookings reach ahead; ms (1..2^53)
--   that the line's keys live; of its fair key, 1..2^53; 0..100 jobs to book; 1 = the
--   lane's time has come, 0 = it may be set aside, and stays so; held sets among KEYS, 0..26
-- ARGV[7] classes: a letter for each limit, then for each name: g all jobs share it,
--   f those of the fair key, A the first held set is of this scope key, B the second
-- ARGV[8...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] now: us, the instant of the call
-- Reply[2] next: the lane to pull now, empty = none
-- Reply[3...] per booked job its id, weight (units) and slot (us)
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is
--   set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(most x limits x entries)
-- Expiry: ledgers: span + grace + 30 s; the line's keys: kept
-- include: clock
-- include: read_controls
-- include: read_calendar
-- include: bind_line
-- include: read_line
local time = clock(ARGV[1])
local ledgers = string.match(ARGV[5], '^%w+$')
local grace, lookahead, kept, share, most, recall, sets =
  string.match(ARGV[6], '^(%d+) (%d+) (%d+) (%d+) (%d+) ([01]) ([12]?%d)$')
local lane, classes = ARGV[4], string.match(ARGV[7], '^[gfA-Z]*$')
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
grace, lookahead, share, most, sets = tonumber(grace), tonumber(lookahead), tonumber(share), tonumber(most), tonumber(sets)
if not (time and ledgers and grace and classes and fair) or grace > 34560000000000 or lookahead > 34560000000000
  or tonumber(kept) < 1 or tonumber(kept) > 9007199254740992 or share < 1 or share > 9007199254740992 or most > 100 or sets > 26 then
  return redis.error_reply('THROTTLE_ARGUMENT number or name')
end
local opens, closer, wrong = read_controls(KEYS[1], ARGV[2], ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 8 + sets, ARGV, 8, time, grace, opens, closer)
if not calendar then
  return wrong
end
local held = { unpack(KEYS, 8, 7 + sets) }
local line = bind_line(KEYS, 2, lane, fair, '')
wrong = read_line(line)
if wrong then
  return wrong
end
local now = calendar.now

-- include: tend
-- include: place
-- include: enter
-- include: write_calendar
-- include: promise
-- include: elect
-- include: enlist
-- include: write_line
-- include: closed
-- include: next_lane
-- include: go_on
-- include: look_again
-- include: held_as
-- include: hold
-- include: let_go
-- include: let_others_in
tend(calendar)
-- Mostly it is the turn of another after one job: few are read at first.
local read = math.min(most, 3)
local waiting = redis.call('ZRANGE', line.queue, '0', string.format('%d', read), 'WITHSCORES')
local aside = tonumber(redis.call('ZSCORE', line.agenda, '/' .. lane) or nil)
if aside and (recall == '1' or aside <= now) then
  redis.call('ZREM', line.agenda, '/' .. lane)
  aside = nil
end
if waiting[1] and not aside then
  enlist(line, kept)
end
local ready = redis.call('ZRANGE', line.ready, '0', '1', 'WITHSCORES')
local turn = waiting[1] and not aside and ready[1] == line.fair and line.front == lane
  and not closed(line.agenda, now)
local tag, rival = tonumber(ready[2]), tonumber(ready[4])
local older = turn and tonumber(redis.call('ZRANGE', line.heads, '1', '1', 'WITHSCORES')[2])
-- Those that are held have a claim to what they wait for.
local contender, contended
for i = 1, turn and sets or 0 do
  local first = redis.call('ZRANGE', held[i], '0', '1', 'WITHSCORES')
  local score = tonumber(first[line.since and first[1] == held_as(line) and 4 or 2])
  if score and (not contender or score < contender) then
    contender, contended = score, i
  end
end

-- One after the other, until it is the turn of another fair key or lane.
local reply, taken, units, latest, served = { now, '' }, {}, 0, now, nil
local booked, seen, holder, place_at, again, light = {}, {}, 0, nil, nil, nil
local outstrips = false
while turn and #taken < most and waiting[2 * #taken + 1] do
  local member, arrival = waiting[2 * #taken + 1], tonumber(waiting[2 * #taken + 2])
  outstrips = #taken > 0 and contender and tag >= contender
  if outstrips or #taken > 0 and (rival and tag >= rival or older and arrival >= older) then
    break
  end
  local text, id = string.match(member, '^(%d+):(.*)$')
  local weight = tonumber(text)
  if not weight then
    return redis.error_reply('THROTTLE_STATE ' .. line.queue)
  end
  local fits = true
  for i = 1, #calendar.ledgers do
    local ledger = calendar.ledgers[i]
    fits = fits and (weight <= ledger.units or ledger.free or ledger.units == 0)
  end
  if not fits then
    -- A limit was lowered below it. It is told so when it comes.
    reply[#reply + 1] = id
    reply[#reply + 1] = weight
    reply[#reply + 1] = now
  elseif not seen[id] and redis.call('HEXISTS', line.hash, '=' .. id) == 0 then
    seen[id] = true
    place_at, holder = place(calendar, weight, now, false)
    -- A heavy job is booked further ahead where lighter ones would else take what
    -- it waits for.
    if place_at > now + lookahead then
      again = place_at - lookahead
      local span = calendar.ledgers[holder] and calendar.ledgers[holder].span or 0
      light = weight == 1 and place_at or place(calendar, 1, now, false)
      if light > now + lookahead then
        again = light - lookahead
        break
      elseif place_at > now + lookahead + span then
        again = again - span
        break
      end
    end
    enter(calendar, 'b', place_at, weight)
    served = tag
    tag = math.max(tag + weight / share, tag * 1.0000000000000002) -- it moves in any case
    booked[#booked + 1] = { id = id, weight = weight, slot = place_at, holder = holder, arrival = arrival }
    reply[#reply + 1] = id
    reply[#reply + 1] = weight
    reply[#reply + 1] = place_at
    latest = math.max(latest, place_at)
    place_at = nil
  end
  taken[#taken + 1] = member
  units = units + weight
  if #taken > read and read < most then
    read = most
    waiting = redis.call('ZRANGE', line.queue, '0', string.format('%d', read), 'WITHSCORES')
  end
end

if #booked > 0 then
  wrong = write_calendar(calendar, latest)
  if wrong then
    return wrong
  end
end
for i = 1, #booked do
  local job = booked[i]
  promise(line, job.id, job.slot, job.weight, job.holder, ledgers, job.arrival, kept)
end
if #taken > 0 then
  redis.call('ZREM', line.queue, unpack(taken))
  line.jobs, line.units = math.max(0, line.jobs - #taken), math.max(0, line.units - units)
  line.all_jobs, line.all_units = math.max(0, line.all_jobs - #taken), math.max(0, line.all_units - units)
end
local head = waiting[2 * #taken + 2]
if not head then
  -- Nobody is left, whatever the numbers say.
  line.all_jobs, line.all_units = math.max(0, line.all_jobs - line.jobs), math.max(0, line.all_units - line.units)
  line.jobs, line.units = 0, 0
  redis.call('ZREM', line.heads, lane)
  redis.call('ZREM', line.agenda, '/' .. lane)
  if line.all_jobs == 0 then
    redis.call('DEL', line.heads)
  end
elseif turn then
  redis.call('ZADD', line.heads, string.format('%d', head), lane)
end
if served then
  redis.call('ZADD', line.ready, string.format('%.17g', tag), line.fair)
  local work = 0
  for i = 1, #booked do
    work = work + booked[i].weight
  end
  -- Nor past those who go on waiting for the same, whose share would be lost.
  local waits = math.min(contender or math.huge, head and tag or math.huge)
  go_on(line, served, tag, work, waits, kept)
end
local class = place_at and (holder > 0 and string.sub(classes, holder, holder) or '')
local holds = 0
if class then
  local weight = tonumber(string.match(waiting[2 * #taken + 1], '^%d+'))
  again = look_again(calendar, again, weight, place_at, lookahead)
  again = math.min(again, now + (class == 'g' and 10000000 or 300000000))
  holds = light > now + lookahead and (string.byte(class) or 64) - 64 or 0
  holds = held[holds] and holds or 0
  if class == 'g' then
    redis.call('ZADD', line.agenda, string.format('%d', again), '*')
  elseif holds > 0 then
    -- It keeps its place among them until it is served.
    local place_kept = not served and line.since and tonumber(redis.call('ZSCORE', held[holds], held_as(line)) or nil)
    hold(line, held, holds, math.min(place_kept or tag, tag), head, again, now, kept)
  else
    redis.call('ZADD', line.agenda, string.format('%d', again), '/' .. lane)
    redis.call('ZREM', line.heads, lane)
  end
elseif outstrips then
  holds = contended
  hold(line, held, holds, tag, head, nil, now, kept)
end
local let_in
local leaves = line.since and holds == 0 and (not head or class and class ~= 'g')
if holds == 0 and (not head or (served or class) and class ~= 'g') then
  let_go(line, held)
end
for i = 1, (served or leaves) and sets or 0 do
  if not (class and holds == i) and redis.call('EXISTS', held[i]) == 1 then
    let_in = let_others_in(line, calendar, held[i], classes, string.char(64 + i), lookahead) or let_in
  end
end
elect(line, kept)
if class == 'f' then
  redis.call('ZREM', line.ready, line.fair)
end
redis.call('PEXPIRE', line.queue, kept)
redis.call('PEXPIRE', line.ready, kept)
redis.call('PEXPIRE', line.agenda, kept)
write_line(line, kept)
reply[2] = next_lane(line.hash, line.agenda, line.ready, now)
if reply[2] == '' and let_in and not closed(line.agenda, now) then
  reply[2] = let_in
end
return reply
