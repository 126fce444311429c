-- Purpose: tell all that is known of one job and of the limits it meets; change nothing.
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
-- ARGV[4] job: "weight grace": units (1..2^53); us (0..400 days) after its slot that a
--   booking still counts
-- ARGV[5] lane: the job's lane
-- ARGV[6] id: the job's ID
-- ARGV[7...] limits of KEYS in order: for a string the number of limits, for a sorted
--   set "units window precision": 0..2^53, us, us (1 = exact), see read_calendar
-- Reply[1] now: us, the instant of the answer
-- Reply[2] closer: the index of the limit of 0, or, behind the limits, of the name that is
--   paused the longest; 0 = none
-- Reply[3] opens: us, until when
-- Reply[4] granted: us, the start of its grant; 0 = none is known
-- Reply[5] charged: units, of its grant
-- Reply[6] settled: 1 if its grant is settled
-- Reply[7] slot: us; 0 = it is not booked
-- Reply[8] holder: what held it back when it was booked, as in reserve
-- Reply[9] arrival: us, since when it is in line; 0 = it is not
-- Reply[10] before: jobs before it in its lane
-- Reply[11] jobs: in its lane
-- Reply[12] units: in its lane
-- Reply[13] aside: us, until when its lane is set aside; 0 = it is not
-- Reply[14...] per limit spent, booked, and when one more unit may start (us; 0 = never)
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is
--   set>, THROTTLE_LEDGERS <scope key> <windows>
-- Cost: O(limits x entries + log jobs)
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
-- Until when a lane is set aside, at the latest, 0 = it is not; and what holds it, as
-- scope:key, empty = nothing. A lane that is held is looked at when its scope key is.
local function aside_until(hash, agenda, lane)
  local ends, holder = tonumber(redis.call('ZSCORE', agenda, '/' .. lane) or 0), ''
  local holds = ends > 0 and redis.call('HEXISTS', hash, '~' .. lane) == 1
  for scope, key in string.gmatch(holds and string.match(lane, '|(.*)$') or '', '([^=,]+)=([^,]*)') do
    local due = tonumber(redis.call('ZSCORE', agenda, '&' .. scope .. ':' .. key) or nil)
    if due and due < ends then
      ends, holder = due, scope .. ':' .. key
    end
  end
  return ends, holder
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
local time = clock(ARGV[1])
local weight, grace = string.match(ARGV[4], '^(%d+) (%d+)$')
local lane, id = ARGV[5], ARGV[6]
local fair = string.match(lane, '^([%w_.@%%~-]*)|[%w_.@%%~=,-]*$')
weight, grace = tonumber(weight), tonumber(grace)
if not (time and weight and fair) or weight < 1 or weight > 9007199254740992 or grace > 34560000000000 then
  return redis.error_reply('THROTTLE_ARGUMENT number or lane')
end
local opens, closer, wrong = read_controls(KEYS[2], ARGV[2], ARGV[3])
if wrong then
  return wrong
end
local calendar
calendar, wrong = read_calendar(KEYS, 9, ARGV, 7, time, grace, opens, closer)
if not calendar then
  return wrong
end
local line = bind_line(KEYS, 3, lane, fair, id)
wrong = read_line(line)
if wrong then
  return wrong
end
local now, record = calendar.now, redis.call('GET', KEYS[1])

local granted, charged, settled = 0, 0, 0
if record then
  local at, units, known = string.match(record, '^(%d+) (%d+) %S+ %S+ ?(%a*)$')
  if not at then
    return redis.error_reply('THROTTLE_STATE record')
  end
  granted, charged, settled = tonumber(at), tonumber(units), known == 'settled' and 1 or 0
end
local booking = line.booking or { slot = 0, holder = 0 }
local arrival, before = 0, 0
if line.jobs > 0 then
  local member = string.format('%d:', weight) .. id
  arrival = tonumber(redis.call('ZSCORE', line.queue, member) or 0)
  before = redis.call('ZRANK', line.queue, member) or 0
end
local reply = {
  now, calendar.opens > now and calendar.closer or 0, calendar.opens, granted, charged, settled, booking.slot, booking.holder,
  arrival, before, line.jobs, line.units, (aside_until(line.hash, line.agenda, lane)),
}
for i = 1, #calendar.ledgers do
  local ledger = calendar.ledgers[i]
  load(ledger, now, grace)
  reply[#reply + 1] = ledger.spent
  reply[#reply + 1] = ledger.booked
  reply[#reply + 1] = ledger.units > 0 and earliest(ledger, calendar, 1, now, false) or 0
end
return reply
