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
-- Reads what was set at run time for the scope keys of a call. names lists them as
-- "+scope:key", with '-' instead of '+' where a pause does not concern the call.
-- The control hash has:
--   '!' scope:key: the instant until which it is paused
--   '%' scope:key: its limits, as text; with an empty key those of all keys of the scope
--   '~' scope, and '~' alone for all scopes: the mode
-- belief is what the caller took to be set when it listed its ledgers: for each name
-- 'k' and the key's own limits, or 'd' and the scope's, then '~' and the mode, each
-- where there is one; empty where nothing is set for any. Where it is wrong the
-- error says what is right, and the caller asks again.
-- Returns the instant at which the last pause ends and the index of its name, or 0.
local function read_controls(key, names, belief)
  local opens, closer, pieces, set = 0, 0, {}, false
  if redis.call('EXISTS', key) == 0 then
    if belief ~= '' then
      return 0, 0, redis.error_reply('THROTTLE_CONTROLS ')
    end
    return 0, 0
  elseif names ~= '' and string.gsub(' ' .. names, ' [+-][%w_.-]+:[%w_.@%%~-]*', '') ~= '' then
    return 0, 0, redis.error_reply('THROTTLE_ARGUMENT names')
  end
  local fields, marks = { '~' }, {}
  for mark, scope, rest in string.gmatch(names, '([+-])([^: ]+):([^ ]*)') do
    marks[#marks + 1] = mark
    fields[#fields + 1] = '!' .. scope .. ':' .. rest
    fields[#fields + 1] = '%' .. scope .. ':' .. rest
    fields[#fields + 1] = '%' .. scope .. ':'
    fields[#fields + 1] = '~' .. scope
  end
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 1, #marks do
    local paused, own, general = values[4 * i - 2], values[4 * i - 1], values[4 * i]
    local mode, ends = values[4 * i + 1] or values[1], tonumber(paused or 0)
    if not ends then
      return 0, 0, redis.error_reply('THROTTLE_STATE ' .. key)
    end
    if ends > opens and marks[i] == '+' then
      opens, closer = ends, i
    end
    pieces[i] = own and 'k' .. own or general and 'd' .. general or ''
    if mode then
      pieces[i] = pieces[i] .. '~' .. mode
    end
    set = set or pieces[i] ~= ''
  end
  local text = set and table.concat(pieces, ' ') or ''
  if text ~= belief then
    return 0, 0, redis.error_reply('THROTTLE_CONTROLS ' .. text)
  end
  return opens, closer
end
-- Takes the totals of one ledger out of those that its scope key's string has
-- (scope.live). Returns whether it has them, in a precision that the call can go on
-- with: the coarser of the two, unless the limit is to have just the one it tells.
local function totals_of(scope, ledger)
  local live = scope.live
  local window, precision, spent, booked, open, open_units, after =
    string.match(live, '^ (%d+):(%d+):(%d+):(%d+):(-?%d+):(%d+)()')
  local before = 1
  if window ~= ledger.window then
    before, precision, spent, booked, open, open_units, after =
      string.match(live, '() ' .. ledger.window .. ':(%d+):(%d+):(%d+):(-?%d+):(%d+)()')
  end
  if not spent then
    return false
  end
  precision = tonumber(precision)
  if precision ~= ledger.precision then
    if precision < ledger.precision or ledger.told then
      return false
    end
    ledger.precision = precision
  end
  ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
  ledger.open, ledger.open_units = scope.seen - open, tonumber(open_units)
  if ledger.spent + ledger.booked == ledger.open_units then
    ledger.bare = true
  end
  if before == 1 and after > #live then
    scope.live = ''
  else
    scope.live = string.sub(live, 1, before - 1) .. string.sub(live, after)
  end
  return true
end
-- How long after the beginning of its sub-window a start counts.
local function span_of(window, precision)
  if precision == 1 then
    return window
  end
  return window - 1 - (window - 1) % precision + 2 * precision
end
-- The totals that the next write does not count on: those that were set aside before
-- (scope.aside), and those that no ledger of this call has taken (scope.live). They are
-- kept, with the instant since which they are not and the units that were charged since
-- (see write_calendar), for adopt to bring them up to date, until all of it has left its
-- window.
local function set_aside(scope, now, grace)
  local aside = {}
  for totals in string.gmatch(scope.aside, '|([^|]*)') do
    local window, precision, since = string.match(totals, '^(%d+):(%d+):.*:(%d+):%d+$')
    if window and since + span_of(tonumber(window), tonumber(precision)) + grace + 30000000 >= now then
      aside[#aside + 1] = '|' .. totals
    end
  end
  for totals, open, units in string.gmatch(scope.live, ' (%d+:%d+:%d+:%d+):(-?%d+):(%d+)') do
    aside[#aside + 1] = string.format('|%s:%d:%s:%d:0', totals, scope.seen - open, units, scope.seen)
  end
  return table.concat(aside)
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
-- A scope key's totals are "seen expire" and for each ledger
-- " window:precision:spent:booked:open:open_units", where seen is the last instant
-- that was written and expire and open are relative to it, as short numbers are read
-- faster. Ledgers that the last call did not count on follow, see set_aside. A limit
-- whose ledger is not among those before, or in another precision, is to be adopted
-- first: the error names its scope key's place and the windows that there are.
--
-- A limit may end in letters: n counts and never holds a job back, s the same and
-- tells when it would have (shadow), x has just this precision. A limit of 0 holds
-- all back until it changes; opens and closer say until when a pause does.
local function read_calendar(keys, first_key, args, first_arg, time, grace, opens, closer)
  local match, tonumber = string.match, tonumber
  local now, scopes, ledgers, total = time, {}, {}, 0
  local untended, never, shadows = false, 0, false
  local k, a = first_key, first_arg
  while keys[k] do
    local count = tonumber(match(args[a] or '', '^%d%d?$') or 0)
    if count == 0 or not keys[k + count] then
      return nil, redis.error_reply('THROTTLE_ARGUMENT number of limits')
    end
    local scope = { key = keys[k], first = total + 1, last = total + count, seen = 0, expire = 0, span = 0, live = '', aside = '' }
    local text = redis.call('GET', keys[k])
    local totals
    if text then
      local seen, expire
      seen, expire, totals = match(text, '^(%d+) (%d+)(.*)$')
      if not seen then
        return nil, redis.error_reply('THROTTLE_STATE ' .. keys[k])
      end
      scope.live = totals
      if string.find(totals, '|', 1, true) then
        scope.live, scope.aside = match(totals, '^([^|]*)(.*)$')
      end
      scope.seen = tonumber(seen)
      scope.expire = scope.seen + expire
      if scope.seen > now and scope.seen - time <= 30000000 then
        now = scope.seen
      end
    end
    for i = 1, count do
      local units, window, precision, how = match(args[a + i] or '', '^(%d+) (%d+) (%d+) ?([nsx]*)$')
      local length = tonumber(window)
      units, precision = tonumber(units), tonumber(precision)
      if not units or units > 9007199254740992 or length < 1000 or length > 34560000000000
        or precision < 1 or precision > length then
        return nil, redis.error_reply('THROTTLE_ARGUMENT limit')
      end
      local ledger = {
        key = keys[k + i], window = window, units = units, precision = precision,
        spent = 0, booked = 0, open = 0, open_units = 0,
      }
      if how ~= '' then
        ledger.free, ledger.told = match(how, '[ns]') and true, match(how, 'x')
        ledger.shadow = match(how, 's')
        shadows = shadows or ledger.shadow
      end
      if not text then
        ledger.unknown, ledger.bare, untended = true, true, true
      elseif not totals_of(scope, ledger) then
        local windows = {}
        for other in string.gmatch(totals, '[ |](%d+):') do
          windows[#windows + 1] = other
        end
        return nil, redis.error_reply(string.format('THROTTLE_LEDGERS %d ', #scopes + 1) .. table.concat(windows, ' '))
      end
      if units == 0 and not ledger.free then
        never = total + i
      end
      ledger.span = span_of(length, ledger.precision)
      if ledger.span > scope.span then
        scope.span = ledger.span
      end
      ledgers[total + i] = ledger
    end
    if scope.live ~= '' then
      scope.aside = set_aside(scope, now, grace)
    end
    total = total + count
    if scope.expire < now + scope.span + grace + 30000000 then
      untended = true
    end
    scopes[#scopes + 1] = scope
    k, a = k + count + 1, a + count + 1
  end
  if never > 0 then
    opens, closer = now + 2 * 34560000000000, never -- beyond any lookahead
  else
    closer = total + closer
  end
  return {
    now = now, grace = grace, scopes = scopes, ledgers = ledgers, untended = untended,
    opens = opens, closer = closer, shadows = shadows, charged = 0,
  }
end
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
-- What a shadow would have done to a job that starts then: the index of the ledger
-- in shadow that would have held it back the longest and the earliest start it
-- would have had; 0 and the start if none would. Nothing of it is charged yet.
local function foresee(calendar, weight, start)
  local holder, latest = 0, start
  for i = 1, #calendar.ledgers do
    local ledger = calendar.ledgers[i]
    if ledger.shadow then
      local at = weight > ledger.units and start + ledger.span or earliest(ledger, calendar, weight, start, false)
      if at > latest then
        holder, latest = i, at
      end
    end
  end
  return holder, latest
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
  if kind == 's' and delta > 0 then
    calendar.charged = calendar.charged + delta
  end
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
    if scope.aside ~= '' and calendar.charged > 0 then
      scope.aside = string.gsub(scope.aside, '([^|]*:)(%d+)', function(head, missed)
        return head .. string.format('%d', missed + calendar.charged)
      end)
    end
    local totals = string.format('%d %d', now, scope.expire - now)
    for i = scope.first, scope.last do
      local ledger = ledgers[i]
      totals = totals .. string.format(' %s:%d:%d:%d:%d:%d', ledger.window, ledger.precision,
        ledger.spent, ledger.booked, now - ledger.open, ledger.open_units)
    end
    local lasts = renew and string.format('%d', math.ceil((scope.expire - now) / 1000))
    if renew then
      redis.call('SET', scope.key, totals .. scope.aside, 'PX', lasts)
    else
      redis.call('SET', scope.key, totals .. scope.aside, 'KEEPTTL')
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
-- Keeps a job's grant for as long as read_record would take it. Where it stands in for
-- another grant of the job it is kept on (ms), so that the other is not settled twice.
local function write_record(key, now, start, weight, nonce, ledgers, kept)
  redis.call('SET', key, string.format('%d %d %s %s', start, weight, nonce, ledgers),
    'PX', kept or string.format('%d', math.ceil((start + 60000000 - now) / 1000) + 1))
end
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

-- The grant that a job's record tells: its start, weight, nonce and ledgers, and
-- whether it is settled. Nil where there is none or where it is more than 60 s old.
local function read_record(text, now)
  if not text then
    return nil
  end
  local start, weight, nonce, ledgers, settled = string.match(text, '^(%d+) (%d+) (%S+) (%S+) ?(%a*)$')
  if not start then
    return nil, redis.error_reply('THROTTLE_STATE record')
  end
  local record = {
    start = tonumber(start), weight = tonumber(weight), nonce = nonce, ledgers = ledgers, settled = settled == 'settled',
  }
  if record.start + 60000000 < now then
    return nil
  end
  return record
end
-- Reads what bind_line has got of the line's hash:
--   '/' lane: "jobs units", what waits in it
--   '=' job: its booking, see promise
--   '@' fair key: "jobs units front", what waits in all its lanes and the lane that
--     is its next
--   '#' fair key: the units that its jobs are promised
--   '~' lane: the arrival of its head, where it is or was held, see hold
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
  line.since = texts[5] and string.match(texts[5], '^%d+$')
  if not (line.units and line.front and line.promised) or texts[2] and not line.booking.lane then
    return redis.error_reply('THROTTLE_STATE ' .. line.hash)
  end
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
-- The earliest start at or after from, and after the end of a pause, at which every
-- ledger that holds jobs back has room for weight, and the index of what moved it
-- last: 0 nothing, a ledger, or calendar.closer. Each ledger is asked in turn until
-- none moves the start.
local function place(calendar, weight, from, spent_only)
  local ledgers = calendar.ledgers
  local count = #ledgers
  local start, holder, agreed, i = from, 0, 0, 1
  if calendar.opens > from then
    start, holder = calendar.opens, calendar.closer
    local never = ledgers[holder]
    if never then -- a limit of 0
      if not never.loaded then
        load(never, calendar.now, calendar.grace)
      end
      return start, holder
    end
  end
  while agreed < count do
    local ledger = ledgers[i]
    local at = ledger.free and start or earliest(ledger, calendar, weight, start, spent_only)
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
  reply[11] = ahead
  reply[12] = line.all_units - line.units + ahead
  reply[13] = redis.call('ZCARD', line.ready)
  for i = 1, #calendar.ledgers do
    reply[12 + 2 * i] = calendar.ledgers[i].spent
    reply[13 + 2 * i] = calendar.ledgers[i].booked
  end
end
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

-- Keeps a job's booking as "slot weight holder ledgers arrival lane", and in '#'
-- fair key the units that its jobs are promised. Half a second after the slot it
-- is overdue: whoever should have come for it is then looked for.
local function promise(line, id, slot, weight, holder, ledgers, arrival, kept)
  line.promised = math.min(line.promised + weight, 9007199254740992)
  redis.call('HSET', line.hash,
    '=' .. id, string.format('%d %d %d %s %d %s', slot, weight, holder, ledgers, arrival, line.lane),
    '#' .. line.fair, string.format('%d', line.promised))
  redis.call('PEXPIRE', line.hash, kept)
  redis.call('ZADD', line.agenda, string.format('%d', slot + 500000), '=' .. id)
  redis.call('PEXPIRE', line.agenda, kept)
end
-- Forgets the booking of a job, which may be of another lane than it is now.
local function unpromise(hash, agenda, id, weight, lane)
  local fair = string.match(lane, '^[^|]*')
  if redis.call('HINCRBY', hash, '#' .. fair, string.format('%d', -weight)) <= 0 then
    redis.call('HDEL', hash, '#' .. fair)
  end
  redis.call('HDEL', hash, '=' .. id)
  redis.call('ZREM', agenda, '=' .. id)
end
-- Has those looked at again that may have room now: everybody, if what all share had
-- none, the lanes that a scope key of the job's holds, and its own, unless it is one of
-- these.
local function make_room(line, names, now)
  local holds = false
  for name in string.gmatch(names, '[+-]([^ ]+)') do
    if redis.call('ZSCORE', line.agenda, '&' .. name) then
      redis.call('ZADD', line.agenda, string.format('%d', now), '&' .. name)
      holds = true
    end
  end
  redis.call('ZREM', line.agenda, '*')
  if not (holds and line.since) then
    redis.call('ZREM', line.agenda, '/' .. line.lane)
  end
end
-- What a lane is called among those that are held: its head's arrival, a blank, its name.
local function held_as(line)
  local since, lane = line.since, line.lane
  return since .. ' ' .. lane
end
-- Takes a lane out of those that its scope keys hold, if it is or was one.
local function let_go(line, sets)
  if line.since then
    for i = 1, #sets do
      redis.call('ZREM', sets[i], held_as(line))
    end
    redis.call('HDEL', line.hash, '~' .. line.lane)
  end
end
-- The name in the agenda of the scope key that holds a set of lanes.
local function holder_of(held)
  return (string.gsub(held, '^.*:held:', '&'))
end
-- Sets a lane aside whose head waits for room under a scope key that several fair keys
-- have: the scope key holds it, with all others that wait there, in order of their fair
-- keys' tags and then of their heads' arrivals, and lets them in one after the other (see
-- first_held). Its name in the agenda, '&' scope:key, says when to look at the first of
-- them; where it is not known, now. The lane's own time there is for what was lost, short
-- of the 300 s after which a sweep takes a time for one from before the clock stepped back.
-- '~' lane in the line's hash tells the arrival.
local function hold(line, sets, i, tag, arrival, again, now, kept)
  local held = sets[i]
  let_go(line, sets)
  line.since = string.format('%017d', tonumber(arrival))
  redis.call('HSET', line.hash, '~' .. line.lane, line.since)
  redis.call('ZADD', held, string.format('%.17g', tag), held_as(line))
  redis.call('PEXPIRE', held, kept)
  redis.call('ZADD', line.agenda, string.format('%d', now + 240000000), '/' .. line.lane)
  local name = holder_of(held)
  if again then
    redis.call('ZADD', line.agenda, string.format('%d', again), name)
  else
    redis.call('ZADD', line.agenda, 'NX', string.format('%d', now), name)
  end
  redis.call('PEXPIRE', line.agenda, kept)
  redis.call('ZREM', line.heads, line.lane)
end
-- Makes the one of a fair key's eligible lanes whose head is oldest its front, and
-- the fair key ready if it has one. Start-time fair queueing (Goyal, Vin, Cheng
-- 1996): who comes to wait starts at the virtual time ('*' among the tags), or
-- where its own last work ended. That nobody is ready is no reason to begin anew:
-- all may be set aside.
local function elect(line, kept)
  line.front = redis.call('ZRANGE', line.heads, '0', '0')[1] or ''
  if line.front == '' then
    redis.call('ZREM', line.ready, line.fair)
  elseif not redis.call('ZSCORE', line.ready, line.fair) then
    local tag = math.max(tonumber(redis.call('ZSCORE', line.tags, '*') or 0),
      tonumber(redis.call('ZSCORE', line.tags, '+' .. line.fair) or 0))
    redis.call('ZADD', line.ready, string.format('%.17g', tag), line.fair)
    redis.call('PEXPIRE', line.ready, kept)
  end
end
-- Sees to it that a lane in which jobs wait is pulled: it is eligible, at the
-- arrival of its head, unless it is set aside. Whatever of that was lost, this
-- puts it right.
local function enlist(line, kept)
  if redis.call('ZSCORE', line.agenda, '/' .. line.lane) then
    return
  end
  local head = redis.call('ZRANGE', line.queue, '0', '0', 'WITHSCORES')
  redis.call('ZADD', line.heads, string.format('%d', head[2]), line.lane)
  redis.call('PEXPIRE', line.heads, kept)
  elect(line, kept)
end
-- Writes what read_line has read and the caller has changed. What is 0 is not
-- kept. The line's keys live longer than any window, so that a job that waits for
-- one is not forgotten.
local function write_line(line, kept)
  if line.jobs > 0 then
    redis.call('HSET', line.hash, '/' .. line.lane, string.format('%d %d', line.jobs, line.units))
  else
    redis.call('HDEL', line.hash, '/' .. line.lane)
  end
  if line.all_jobs > 0 then
    redis.call('HSET', line.hash, '@' .. line.fair, string.format('%d %d %s', line.all_jobs, line.all_units, line.front))
  else
    redis.call('HDEL', line.hash, '@' .. line.fair)
  end
  redis.call('PEXPIRE', line.hash, kept)
end
-- Takes a job out of its lane. Where the lane is eligible or set aside it stays,
-- and the next pull clears it away; one that is held is due for that at once. A fair key
-- without a job is not ready.
local function leave(line, member, weight, kept)
  redis.call('ZREM', line.queue, member)
  line.jobs, line.units = math.max(0, line.jobs - 1), math.max(0, line.units - weight)
  line.all_jobs, line.all_units = math.max(0, line.all_jobs - 1), math.max(0, line.all_units - weight)
  if line.jobs == 0 and line.since then
    redis.call('ZADD', line.agenda, '0', '/' .. line.lane)
  end
  if line.all_jobs == 0 then
    redis.call('DEL', line.heads)
    redis.call('ZREM', line.ready, line.fair)
  end
  write_line(line, kept)
end
-- Puts a job in its lane: behind the others, or where it stood before.
local function join(line, member, weight, arrival, kept)
  redis.call('ZADD', line.queue, string.format('%d', arrival), member)
  redis.call('PEXPIRE', line.queue, kept)
  -- Beyond 2^53 units would not be counted right, nor written as integers.
  line.jobs, line.units = line.jobs + 1, math.min(line.units + weight, 9007199254740992)
  line.all_jobs, line.all_units = line.all_jobs + 1, math.min(line.all_units + weight, 9007199254740992)
  enlist(line, kept)
  write_line(line, kept)
end
-- Whether nobody is to be pulled now, since what all share has no room: until the
-- time that the agenda's '*' says, never more than 10 s ahead. A time further
-- ahead is from before the clock stepped back.
local function closed(agenda, now)
  local again = tonumber(redis.call('ZSCORE', agenda, '*') or 0)
  return again > now and again <= now + 10000000
end
-- The lane to pull next: the front of the fair key with the lowest start tag. None
-- ('') where nobody is ready or what all share has no room.
local function next_lane(hash, agenda, ready, now)
  local fair = redis.call('ZRANGE', ready, '0', '0')[1]
  if not fair or closed(agenda, now) then
    return ''
  end
  return string.match(redis.call('HGET', hash, '@' .. fair) or '', '^%d+ %d+ (%S*)$') or ''
end
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
