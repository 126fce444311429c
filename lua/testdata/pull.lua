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
-- Binds the six keys of the line from keys[first] on and reads, in one command,
-- what the line's hash tells of a lane, a job, and the lane's fair key. What it
-- tells is to be read by read_line, where the lane and the job are in it.
local function bind_line(keys, first, lane, fair, id)
  return {
    hash = keys[first], agenda = keys[first + 1], ready = keys[first + 2], tags = keys[first + 3],
    heads = keys[first + 4], queue = keys[first + 5], lane = lane, fair = fair,
    texts = redis.call('HMGET', keys[first], '/' .. lane, '=' .. id, '@' .. fair, '#' .. fair, '~' .. lane),
  }
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
-- Moves the tag of a fair key that was served on, and the virtual time. That goes on with
-- the tags that are served, and by what each of those who are ready, and one who comes,
-- would have got of this work (after WF2Q+, Bennett and Zhang 1996): else those who come
-- with one job each have the tag of those who wait, and names decide. It is never more
-- than a job ahead of the last who is ready, nor past waits.
local function go_on(line, served, tag, work, waits, kept)
  redis.call('ZADD', line.ready, string.format('%.17g', tag), line.fair)
  local time = tonumber(redis.call('ZSCORE', line.tags, '*') or 0)
  local last = tonumber(redis.call('ZRANGE', line.ready, '-1', '-1', 'WITHSCORES')[2])
  time = math.min(time + work / (redis.call('ZCARD', line.ready) + 1), last + work, waits)
  time = math.max(served, time)
  redis.call('ZADD', line.tags, string.format('%.17g', time), '*', string.format('%.17g', tag), '+' .. line.fair)
  redis.call('PEXPIRE', line.tags, kept)
  -- What is past means as much as none; a few each time, so that all go.
  local past = redis.call('ZRANGEBYSCORE', line.tags, '-inf', string.format('(%.17g', time), 'LIMIT', '0', '8')
  if past[1] then
    redis.call('ZREM', line.tags, unpack(past))
  end
end
-- When to look again at a head that has its place at start: at the time at, but where what
-- is only promised is in the way, and may not come, within a second or the grace.
local function look_again(calendar, at, weight, start, lookahead)
  local spent = place(calendar, weight, calendar.now, true)
  if spent < start then
    return math.min(at, math.max(calendar.now + math.min(calendar.grace, 1000000), spent - lookahead))
  end
  return at
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
-- The first of the lanes that a scope key holds, up to most, by tag. A lane whose fair
-- key was served meanwhile, by another lane of it, moves back first; a tag that is past
-- means as much as none. One that is not set
-- aside was let in and keeps its place for when there is no room after all; where only
-- such are found they are gone.
local function first_held(held, agenda, tags, most)
  local lanes = redis.call('ZRANGE', held, '0', '7', 'WITHSCORES')
  local time, moved = tonumber(redis.call('ZSCORE', tags, '*') or 0), false
  for i = 1, #lanes, 2 do
    local fair = string.match(lanes[i], '^%d+ ([^|]*)')
    local tag = tonumber(redis.call('ZSCORE', tags, '+' .. fair) or nil)
    if tag and tag >= time and tag > tonumber(lanes[i + 1]) then
      redis.call('ZADD', held, string.format('%.17g', tag), lanes[i])
      moved = true
    end
  end
  if moved then
    lanes = redis.call('ZRANGE', held, '0', '7', 'WITHSCORES')
  end
  local found, others = {}, {}
  for i = 1, #lanes, 2 do
    local lane = string.match(lanes[i], '^%d+ (.*)$')
    if not redis.call('ZSCORE', agenda, '/' .. lane) then
      others[#others + 1] = lanes[i]
    elseif #found < most then
      found[#found + 1] = lane
    end
  end
  if others[1] and 2 * #others == #lanes then
    redis.call('ZREM', held, unpack(others))
  end
  return found
end
-- Lets lanes in that a scope key holds, since one was served or has left: two, so that soon
-- there are as many as there is room for. Where there is none for a job of weight 1, it
-- says when to look again. Returns the first that is let in, or nil. class is the scope
-- key's letter.
local function let_others_in(line, calendar, held, classes, class, lookahead)
  local now = calendar.now
  local start, full = place(calendar, 1, now, false)
  if start > now + lookahead and string.sub(classes, full, full) == class then
    local again = math.min(look_again(calendar, start - lookahead, 1, start, lookahead), now + 300000000)
    redis.call('ZADD', line.agenda, string.format('%d', again), holder_of(held))
    return nil
  end
  local lanes = first_held(held, line.agenda, line.tags, 2)
  for _, lane in ipairs(lanes) do
    redis.call('ZADD', line.agenda, string.format('%d', now), '/' .. lane)
  end
  return lanes[1]
end
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
