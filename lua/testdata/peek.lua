-- Purpose: say what reserve would answer for a new job now; change nothing.
-- KEYS[1] line: hash, thr:{name}:2:line
-- KEYS[2] agenda: sorted set, thr:{name}:2:agenda
-- KEYS[3] ready: sorted set, thr:{name}:2:ready
-- KEYS[4] tags: sorted set, thr:{name}:2:tags
-- KEYS[5] heads: sorted set, thr:{name}:2:heads:<fair key>
-- KEYS[6] lane: sorted set, thr:{name}:2:lane:<lane>
-- KEYS[7...] calendar: for each scope key a string thr:{name}:2:key:<scope>:<key>,
--   then for each of its limits a sorted set thr:{name}:2:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] weight: units, 1..2^53
-- ARGV[3] grace: us after its slot that a booking still counts
-- ARGV[4] max wait: us, a start within it would be granted
-- ARGV[5] lookahead: us that bookings reach ahead
-- ARGV[6] lane: the job's lane
-- ARGV[7...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact)
-- Reply[1] outcome: 1 granted, 2 booked, 3 waiting
-- Reply[2] now: us, the instant of the answer
-- Reply[3] start: us, the earliest start that there is
-- Reply[4] holder: index of the limit that holds the job back, 0 = none
-- Reply[5] spent: units in the holder's window; 0 without holder
-- Reply[6] booked: units promised in the holder; 0 without holder
-- Reply[7] replayed: 0
-- Reply[8] next: empty
-- Reply[9] ahead: units that wait in its lane; this and what follows only if waiting
-- Reply[10] line: units that wait in all its fair key's lanes
-- Reply[11] rivals: fair keys that are ready
-- Reply[12...] per limit spent and booked units
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_WEIGHT <limit>, THROTTLE_STATE <what>
-- Cost: O(limits) with room; O(limits x entries) without
-- Expiry: none, nothing is written
-- The integer that a canonical decimal text says, or nil for any other text and
-- for an integer outside low..high. Texts that tonumber alone would take (0x10,
-- 1e3, ' 12 ', nan, inf, 1.5, 007) are refused.
local function integer(text, low, high)
  local n = tonumber(text)
  if n and n >= low and n <= high and string.format('%d', n) == text then
    return n
  end
end
-- The instant of this call in microseconds since 1970: Redis' own clock, read
-- once, unless a test says the time. nil if the test's text is not an instant.
local function clock(text)
  if text == '' then
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
  end
  return integer(text, 0, 9007199254740992)
end
-- Takes the totals of one ledger out of those that its scope key's string has
-- (scope.others). Returns whether it has them.
local function totals_of(scope, ledger)
  local others = scope.others
  if others == '' then
    return false
  end
  local window, spent, booked, open, open_units, after =
    string.match(others, '^ (%d+):(%d+):(%d+):(-?%d+):(%d+)()')
  local before = 1
  if window ~= ledger.window then
    before, spent, booked, open, open_units, after =
      string.match(others, '() ' .. ledger.window .. ':(%d+):(%d+):(-?%d+):(%d+)()')
  end
  if not spent then
    return false
  end
  ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
  ledger.open, ledger.open_units = scope.seen - open, tonumber(open_units)
  if ledger.spent + ledger.booked == ledger.open_units then
    ledger.bare = true
  end
  if before == 1 and after > #others then
    scope.others = ''
  else
    scope.others = string.sub(others, 1, before - 1) .. string.sub(others, after)
  end
  return true
end
-- Binds the ledgers of one job and reads their totals, nothing else. For each
-- scope key, keys has a string followed by one sorted set per limit, from
-- first_key on; args describes each key in turn from first_arg on: the number of
-- limits for a string, "units window precision" for a sorted set. Returns the
-- calendar, or nil and the error to reply.
--
-- The calendar's now never goes back: where Redis' clock stepped back by up to
-- 30 s, time stands still until the clock has caught up. After a larger step the
-- clock is believed; what lies in its future still counts.
--
-- A ledger's entries are kept in its sorted set, except the newest sub-window of
-- spent units: it is open, kept with the totals, and moves to the sorted set when
-- a newer one begins, so that starts in one sub-window cost no entry each. The
-- totals also count entries that have left since the last look: they err on the
-- high side. A ledger whose totals are not there (new, evicted) is unknown and has
-- to be counted. The calendar is untended while a ledger is unknown or a key's
-- expiry is due to be renewed.
--
-- A scope key's totals are "seen expire" and for each window
-- " window:spent:booked:open:open_units", where seen is the last instant that was
-- written and expire and open are relative to it, as short numbers are read faster.
-- Totals of limits that this call does not know, since processes with an older and
-- a newer configuration run side by side, are kept as they are.
local function read_calendar(keys, first_key, args, first_arg, time, grace)
  local match, tonumber = string.match, tonumber
  local now, scopes, ledgers, total = time, {}, {}, 0
  local untended = false
  local k, a = first_key, first_arg
  while keys[k] do
    local count = tonumber(match(args[a] or '', '^%d%d?$') or 0)
    if count == 0 or not keys[k + count] then
      return nil, redis.error_reply('THROTTLE_ARGUMENT number of limits')
    end
    local scope = { key = keys[k], first = total + 1, last = total + count, seen = 0, expire = 0, span = 0, others = '' }
    local text = redis.call('GET', keys[k])
    if text then
      local seen, expire, others = match(text, '^(%d+) (%d+)(.*)$')
      if not seen then
        return nil, redis.error_reply('THROTTLE_STATE ' .. keys[k])
      end
      scope.seen = tonumber(seen)
      scope.expire, scope.others = scope.seen + expire, others
      if scope.seen > now and scope.seen - time <= 30000000 then
        now = scope.seen
      end
    end
    for i = 1, count do
      local units, window, precision = match(args[a + i] or '', '^(%d+) (%d+) (%d+)$')
      local span = tonumber(window)
      units, precision = tonumber(units), tonumber(precision)
      if not units or units > 9007199254740992 or span < 1000 or span > 34560000000000
        or precision < 1 or precision > span then
        return nil, redis.error_reply('THROTTLE_ARGUMENT limit')
      end
      if precision > 1 then
        span = span - 1 - (span - 1) % precision + 2 * precision
      end
      if span > scope.span then
        scope.span = span
      end
      local ledger = {
        key = keys[k + i], window = window, units = units, precision = precision, span = span,
        spent = 0, booked = 0, open = 0, open_units = 0,
      }
      if not totals_of(scope, ledger) then
        ledger.unknown, ledger.bare, untended = true, true, true
      end
      ledgers[total + i] = ledger
    end
    total = total + count
    if scope.expire < now + scope.span + grace + 30000000 then
      untended = true
    end
    scopes[#scopes + 1] = scope
    k, a = k + count + 1, a + count + 1
  end
  return { now = now, grace = grace, scopes = scopes, ledgers = ledgers, untended = untended }
end
-- Binds the six keys of the line from keys[first] on and reads, in one command,
-- what the line's hash tells of a lane, a job, and the lane's fair key. What it
-- tells is to be read by read_line, where the lane and the job are in it.
local function bind_line(keys, first, lane, fair, id)
  return {
    hash = keys[first], agenda = keys[first + 1], ready = keys[first + 2], tags = keys[first + 3],
    heads = keys[first + 4], queue = keys[first + 5], lane = lane, fair = fair,
    texts = redis.call('HMGET', keys[first], '/' .. lane, '=' .. id, '@' .. fair, '#' .. fair),
  }
end
-- Reads what bind_line has got of the line's hash:
--   '/' lane: "jobs units", what waits in it
--   '=' job: its booking, see promise
--   '@' fair key: "jobs units front", what waits in all its lanes and the lane that
--     is its next
--   '#' fair key: the units that its jobs are promised
-- Returns the error to reply where it holds something else.
local function read_line(line)
  local texts = line.texts
  line.jobs, line.units, line.all_jobs, line.all_units, line.front, line.promised = 0, 0, 0, 0, '', 0
  if texts[1] then
    local jobs, units = string.match(texts[1], '^(%d+) (%d+)$')
    line.jobs, line.units = tonumber(jobs), tonumber(units)
  end
  if texts[2] then
    local slot, weight, holder, ledgers, arrival, lane = string.match(texts[2], '^(%d+) (%d+) (%d+) (%w+) (%d+) (%S+)$')
    line.booking = {
      slot = tonumber(slot), weight = tonumber(weight), holder = tonumber(holder),
      ledgers = ledgers, arrival = tonumber(arrival), lane = lane,
    }
  end
  if texts[3] then
    local jobs, units, front = string.match(texts[3], '^(%d+) (%d+) (%S*)$')
    line.all_jobs, line.all_units, line.front = tonumber(jobs), tonumber(units), front
  end
  if texts[4] then
    line.promised = tonumber(texts[4])
  end
  if not (line.units and line.front and line.promised) or texts[2] and not line.booking.lane then
    return redis.error_reply('THROTTLE_STATE ' .. line.hash)
  end
end
-- Takes what has left the window out of a ledger's totals: spent units whose
-- sub-window is a whole span old, and bookings among them whose grace is over.
-- At most 1,000 entries at a time; the rest counts on, which is the safe side.
local function trim(ledger, now, grace)
  local edge = now - now % ledger.precision - ledger.span
  local dropped = ledger.dropped or {}
  local members = redis.call('ZRANGEBYSCORE', ledger.key, '-inf', string.format('%d', edge), 'LIMIT', '0', '1000')
  for i = 1, #members do
    local kind, at, units = string.match(members[i], '^([sb])(%d+):(%d+)$')
    if not kind then
      error('THROTTLE_STATE ' .. ledger.key, 0)
    end
    if kind == 's' then
      ledger.spent = ledger.spent - units
      dropped[#dropped + 1] = members[i]
    elseif at + ledger.precision + grace <= now then
      ledger.booked = ledger.booked - units
      dropped[#dropped + 1] = members[i]
    end
  end
  if ledger.open <= edge then
    ledger.spent, ledger.open_units = ledger.spent - ledger.open_units, 0
  end
  ledger.dropped, ledger.trimmed = dropped, true
end
-- Reads a ledger's entries in order of time into ledger.at, ledger.amount and
-- ledger.promised, leaves out what has left the window and bookings whose grace
-- is over, and counts the totals anew. What was entered and given back in this
-- call (ledger.edits) is seen as already done. An entry that is none of ours ends the
-- script here, where nothing has been written yet.
local function load(ledger, now, grace)
  local edge = now - now % ledger.precision - ledger.span
  local stale = now - grace - ledger.precision
  local members = redis.call('ZRANGEBYSCORE', ledger.key, '-inf', '+inf')
  local edits = ledger.edits or {}
  local edited = #edits > 0
  local match, tonumber = string.match, tonumber
  local ats, amounts, promised, dropped = {}, {}, {}, {}
  local spent, booked, count = 0, 0, 0
  local open = ledger.open_units > 0 and ledger.open > edge and ledger.open
  for i = 1, #members do
    local kind, at, units = match(members[i], '^([sb])(%d+):(%d+)$')
    if not kind then
      error('THROTTLE_STATE ' .. ledger.key, 0)
    end
    at, units = tonumber(at), tonumber(units)
    if edited then
      for j = 1, #edits do
        if edits[j].kind == kind and edits[j].at == at then
          units = edits[j].new
        end
      end
    end
    if open and at > open then
      count = count + 1
      ats[count], amounts[count], promised[count] = open, ledger.open_units, false
      spent, open = spent + ledger.open_units, false
    end
    if kind == 's' and at > edge then
      spent = spent + units
      count = count + 1
      ats[count], amounts[count], promised[count] = at, units, false
    elseif kind == 'b' and at > stale then
      booked = booked + units
      count = count + 1
      ats[count], amounts[count], promised[count] = at, units, true
    else
      dropped[#dropped + 1] = members[i]
    end
  end
  if open then
    count = count + 1
    ats[count], amounts[count], promised[count] = open, ledger.open_units, false
    spent = spent + ledger.open_units
  end
  for j = 1, #edits do
    local edit = edits[j]
    if edit.old == 0 and edit.new > 0 then
      local i = count
      while i > 0 and ats[i] > edit.at do
        ats[i + 1], amounts[i + 1], promised[i + 1] = ats[i], amounts[i], promised[i]
        i = i - 1
      end
      ats[i + 1], amounts[i + 1], promised[i + 1] = edit.at, edit.new, edit.kind == 'b'
      count = count + 1
      if edit.kind == 'b' then
        booked = booked + edit.new
      else
        spent = spent + edit.new
      end
    end
  end
  if ledger.open <= edge then
    ledger.open_units = 0
  end
  ledger.at, ledger.amount, ledger.promised, ledger.count = ats, amounts, promised, count
  ledger.spent, ledger.booked, ledger.dropped = spent, booked, dropped
  ledger.trimmed, ledger.loaded = true, true
end
-- Looks after the ledgers before a decision: counts those whose totals are not
-- known, and about four times a window, when the keys' expiry is due to be
-- renewed, takes out what has left.
local function tend(calendar)
  local now, grace = calendar.now, calendar.grace
  for s = 1, #calendar.scopes do
    local scope = calendar.scopes[s]
    local due = scope.expire < now + scope.span + grace + 30000000
    for i = scope.first, scope.last do
      local ledger = calendar.ledgers[i]
      if ledger.unknown then
        load(ledger, now, grace)
      elseif due then
        trim(ledger, now, grace)
      end
    end
  end
end
-- The earliest sub-window, from the one of from on, such that every window that
-- contains it holds at most room units: one pass over the loaded entries.
--
-- The window ending at stop holds the entries first..last. While it holds too
-- much, no start before its oldest entry leaves can be right, so the candidate
-- moves there. Once no entry between the candidate and a span later ends a
-- window that holds too much, the candidate stands.
local function slide(ledger, room, from, spent_only)
  local at, amount, promised, count, span = ledger.at, ledger.amount, ledger.promised, ledger.count, ledger.span
  local candidate = from - from % ledger.precision
  local stop, sum, first, last = candidate, 0, 1, 0
  while true do
    while last < count and at[last + 1] <= stop do
      last = last + 1
      if not (spent_only and promised[last]) then
        sum = sum + amount[last]
      end
    end
    while first <= last and at[first] <= stop - span do
      if not (spent_only and promised[first]) then
        sum = sum - amount[first]
      end
      first = first + 1
    end
    if sum > room then
      candidate = at[first] + span
      stop = candidate
    elseif last == count or at[last + 1] >= candidate + span then
      return math.max(candidate, from)
    else
      stop = at[last + 1]
    end
  end
end
-- The earliest start at or after from at which a ledger has room for weight, with
-- or without regard to what is booked. Where all units on the ledger leave room,
-- no entry is read.
local function earliest(ledger, calendar, weight, from, spent_only)
  local room = ledger.units - weight
  if ledger.spent <= room and (spent_only or ledger.booked <= room - ledger.spent) then
    return from
  end
  if not ledger.trimmed and (spent_only or ledger.booked == 0) then
    trim(ledger, calendar.now, calendar.grace)
    if ledger.spent <= room and (spent_only or ledger.booked <= room - ledger.spent) then
      return from
    end
  end
  if not ledger.loaded then
    load(ledger, calendar.now, calendar.grace)
  end
  return slide(ledger, room, from, spent_only)
end
-- The earliest start at or after from at which every ledger has room for weight,
-- and the index of the ledger that moved it last (0: none did). Each ledger is
-- asked in turn until none moves the start.
local function place(calendar, weight, from, spent_only)
  local ledgers = calendar.ledgers
  local count = #ledgers
  local start, holder, agreed, i = from, 0, 0, 1
  while agreed < count do
    local at = earliest(ledgers[i], calendar, weight, start, spent_only)
    if at > start then
      start, holder, agreed = at, i, 0
    end
    agreed = agreed + 1
    i = i < count and i + 1 or 1
  end
  return start, holder
end
-- Adds to a reply what a job's wait can be estimated by: the units before it in its
-- lane, the same with those in its fair key's other lanes, how many fair keys are
-- ready, and what each limit's ledger has spent and booked.
local function tell_wait(reply, line, calendar, ahead)
  reply[9] = ahead
  reply[10] = line.all_units - line.units + ahead
  reply[11] = redis.call('ZCARD', line.ready)
  for i = 1, #calendar.ledgers do
    reply[10 + 2 * i] = calendar.ledgers[i].spent
    reply[11 + 2 * i] = calendar.ledgers[i].booked
  end
end
local time = clock(ARGV[1])
local weight = integer(ARGV[2], 1, 9007199254740992)
local grace = integer(ARGV[3], 0, 34560000000000)
local max_wait = integer(ARGV[4], 0, 34560000000000)
local lookahead = integer(ARGV[5], 0, 34560000000000)
local lane = ARGV[6]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
if not (time and weight and grace and max_wait and lookahead and fair) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local calendar, wrong = read_calendar(KEYS, 7, ARGV, 7, time, grace)
if not calendar then
  return wrong
end
local line = bind_line(KEYS, 1, lane, fair, '')
wrong = read_line(line)
if wrong then
  return wrong
end
for i = 1, #calendar.ledgers do
  if weight > calendar.ledgers[i].units then
    return redis.error_reply(string.format('THROTTLE_WEIGHT %d', i))
  end
end

tend(calendar)
local now = calendar.now
local start, holder = place(calendar, weight, now, false)
local outcome = 3
if line.jobs == 0 and start <= now + max_wait then
  outcome = 1
elseif line.jobs == 0 and start <= now + lookahead and redis.call('ZCARD', line.ready) == 0 then
  outcome = 2
end
local held = calendar.ledgers[holder] or { spent = 0, booked = 0 }
local reply = { outcome, now, start, holder, held.spent, held.booked, 0, '' }
if outcome == 3 then
  tell_wait(reply, line, calendar, line.units)
end
return reply
