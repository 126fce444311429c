-- Purpose: count the units that started in a past interval; change nothing.
-- KEYS[1] scope key: string, thr:{name}:2:key:<scope>:<key>
-- KEYS[2] ledger: sorted set, thr:{name}:2:ledger:<scope>:<key>:<window>
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] from: us before now, where the interval begins (included)
-- ARGV[3] to: us before now, where the interval ends (excluded)
-- ARGV[4...] limits of KEYS in order: 1, then "units window precision" of the ledger;
--   a sub-window that overlaps the interval counts whole
-- Reply[1] now: us, the instant of the answer
-- Reply[2] units: what started in the interval, at most one precision too much at either end
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>
-- Cost: O(entries)
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
local time = clock(ARGV[1])
local from = integer(ARGV[2], 0, 34560000000000)
local to = integer(ARGV[3], 0, 34560000000000)
if not (time and from and to) then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local calendar, wrong = read_calendar(KEYS, 1, ARGV, 4, time, 0)
if not calendar then
  return wrong
end

local ledger, now, units = calendar.ledgers[1], calendar.now, 0
load(ledger, now, 0)
for i = 1, ledger.count do
  local at = ledger.at[i]
  if not ledger.promised[i] and at < now - to and at + ledger.precision > now - from then
    units = units + ledger.amount[i]
  end
end
return { now, units }
