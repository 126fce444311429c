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
-- The reservation that a job's record tells: its kind ('g' granted, 'b' booked),
-- start, weight and ledgers, and the nonce of a grant or the holder of a booking.
-- Nil where there is none or where it no longer holds: a booking whose grace is
-- over, a grant of more than 60 s ago, a reservation in other ledgers than those
-- of this call.
local function read_record(text, now, grace, ledgers)
  if not text then
    return nil
  end
  local kind, start, weight, detail, known = string.match(text, '^([gb]) (%d+) (%d+) (%S+) (%S+)$')
  if not kind then
    return nil, redis.error_reply('THROTTLE_STATE record')
  end
  local record = { kind = kind, start = tonumber(start), weight = tonumber(weight), detail = detail }
  local kept = 60000000
  if kind == 'b' then
    kept = grace
  end
  if known ~= ledgers or record.start + kept < now then
    return nil
  end
  return record
end
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

-- Changes the units of a ledger's entry of one kind ('s', 'b') at one sub-window,
-- to be written by write_calendar, and returns by how much. What the entry has now
-- is read, unless the caller knows it.
local function edit(ledger, kind, at, delta, known)
  if delta == 0 then
    return 0
  end
  ledger.edits = ledger.edits or {}
  local found
  for i = 1, #ledger.edits do
    if ledger.edits[i].kind == kind and ledger.edits[i].at == at then
      found = ledger.edits[i]
    end
  end
  if not found then
    local score, units = string.format('%d', at), known or 0
    if not known then
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', ledger.key, score, score)) do
        local other, text = string.match(member, '^([sb])%d+:(%d+)$')
        if other == kind then
          units = tonumber(text)
        end
      end
    end
    found = { kind = kind, at = at, score = score, old = units, new = units }
    ledger.edits[#ledger.edits + 1] = found
  end
  local before = found.new
  found.new = math.max(0, before + delta)
  return found.new - before
end
-- Enters a change of units into every ledger of the calendar, at the sub-window
-- of start, as spent ('s') or booked ('b'). Nothing is written before
-- write_calendar. Giving back takes at most what is there, and nothing from an
-- entry that counts no more.
local function enter(calendar, kind, start, delta)
  local now = calendar.now
  for i = 1, #calendar.ledgers do
    local ledger = calendar.ledgers[i]
    local at = start - start % ledger.precision
    local edge = now - now % ledger.precision - ledger.span
    if kind == 'b' then
      if delta > 0 or at > now - calendar.grace - ledger.precision then
        ledger.booked = ledger.booked + edit(ledger, 'b', at, delta)
      end
    elseif at > ledger.open and delta > 0 then
      if ledger.open > edge then
        -- The open sub-window has no entry yet: that is what makes it open.
        edit(ledger, 's', ledger.open, ledger.open_units, 0)
        ledger.spent = ledger.spent + delta
      else
        ledger.spent = ledger.spent - ledger.open_units + delta
      end
      ledger.open, ledger.open_units = at, delta
    elseif at == ledger.open then
      local before = ledger.open_units
      ledger.open_units = math.max(0, before + delta)
      ledger.spent = ledger.spent + ledger.open_units - before
    elseif at > edge then
      ledger.spent = ledger.spent + edit(ledger, 's', at, delta)
    end
    ledger.loaded = false
  end
end
-- Writes what was entered and dropped. The growing writes come first and are
-- undone if one of them fails (out of memory, a key of another type), so that
-- either all ledgers are charged or none; only then is anything taken away.
-- Returns an error to reply, or nil.
--
-- Every key expires once nothing in it can count any more, 30 s for a clock that
-- steps back, and some slack so that the expiry is renewed about four times a
-- window and not with every start.
local function write_calendar(calendar, start)
  local now, ledgers = calendar.now, calendar.ledgers
  local added
  for i = 1, #ledgers do
    local ledger = ledgers[i]
    for j = 1, ledger.edits and #ledger.edits or 0 do
      local edit = ledger.edits[j]
      if edit.new > 0 and edit.new ~= edit.old then
        local member = string.format('%s%s:%d', edit.kind, edit.score, edit.new)
        local result = redis.pcall('ZADD', ledger.key, edit.score, member)
        added = added or {}
        if type(result) == 'table' then
          for u = 1, #added, 2 do
            redis.call('ZREM', added[u], added[u + 1])
          end
          return result
        end
        added[#added + 1] = ledger.key
        added[#added + 1] = member
        if not ledger.bare and redis.call('ZCARD', ledger.key) == 1 then
          ledger.bare = true -- it was evicted, and has no expiry now
        end
      end
    end
  end
  for i = 1, #ledgers do
    local ledger = ledgers[i]
    for j = 1, ledger.edits and #ledger.edits or 0 do
      local edit = ledger.edits[j]
      if edit.old > 0 and edit.new ~= edit.old then
        redis.call('ZREM', ledger.key, string.format('%s%s:%d', edit.kind, edit.score, edit.old))
      end
    end
    local dropped = ledger.dropped
    for j = 1, dropped and #dropped or 0, 1000 do
      redis.call('ZREM', ledger.key, unpack(dropped, j, math.min(j + 999, #dropped)))
    end
  end
  for s = 1, #calendar.scopes do
    local scope = calendar.scopes[s]
    local needed = (start > now and start or now) + scope.span + calendar.grace + 30000000
    local renew = scope.expire < needed
    if renew then
      scope.expire = needed + math.floor(scope.span / 4)
    end
    local totals = string.format('%d %d', now, scope.expire - now)
    for i = scope.first, scope.last do
      local ledger = ledgers[i]
      totals = totals .. string.format(' %s:%d:%d:%d:%d', ledger.window,
        ledger.spent, ledger.booked, now - ledger.open, ledger.open_units)
    end
    local lasts = renew and string.format('%d', math.ceil((scope.expire - now) / 1000))
    if renew then
      redis.call('SET', scope.key, totals .. scope.others, 'PX', lasts)
    else
      redis.call('SET', scope.key, totals .. scope.others, 'KEEPTTL')
    end
    for i = scope.first, scope.last do
      local ledger = ledgers[i]
      if renew and not ledger.bare or ledger.edits and (renew or ledger.bare) then
        lasts = lasts or string.format('%d', math.ceil((scope.expire - now) / 1000))
        redis.call('PEXPIRE', ledger.key, lasts)
      end
    end
  end
end
-- Keeps a job's reservation for as long as read_record would take it: a booking
-- until its grace is over, a grant for 60 s.
local function write_record(key, now, grace, kind, start, weight, detail, ledgers)
  local kept = 60000000
  if kind == 'b' then
    kept = grace
  end
  redis.call('SET', key, string.format('%s %d %d %s %s', kind, start, weight, detail, ledgers),
    'PX', string.format('%d', math.ceil((start + kept - now) / 1000) + 1))
end
local start, holder, taken = now, 0, false
if not at_once then
-- Reads a ledger's entries in order of time into ledger.at, ledger.amount and
-- ledger.promised, leaves out what has left the window and bookings whose grace
-- is over, and counts the totals anew. What was given back in this call
-- (ledger.edits) is seen as already done. An entry that is none of ours ends the
-- script here, where nothing has been written yet.
local function load(ledger, now, grace)
  local edge = now - now % ledger.precision - ledger.span
  local stale = now - grace - ledger.precision
  local members = redis.call('ZRANGEBYSCORE', ledger.key, '-inf', '+inf')
  local edits = ledger.edits or {}
  local ats, amounts, promised, dropped = {}, {}, {}, {}
  local spent, booked, count = 0, 0, 0
  local open = ledger.open_units > 0 and ledger.open > edge and ledger.open
  for i = 1, #members do
    local kind, at, units = string.match(members[i], '^([sb])(%d+):(%d+)$')
    if not kind then
      error('THROTTLE_STATE ' .. ledger.key, 0)
    end
    at, units = tonumber(at), tonumber(units)
    for j = 1, #edits do
      if edits[j].kind == kind and edits[j].at == at then
        units = edits[j].new
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
  if ledger.open <= edge then
    ledger.open_units = 0
  end
  ledger.at, ledger.amount, ledger.promised, ledger.count = ats, amounts, promised, count
  ledger.spent, ledger.booked, ledger.dropped = spent, booked, dropped
  ledger.trimmed, ledger.loaded = true, true
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
local function sweep(ledger, room, from, spent_only)
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
  return sweep(ledger, room, from, spent_only)
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
