-- Purpose: make the ledgers of one scope key's limits such that a call can count on them:
--   build one that is new, bring up to date one that was set aside, change a precision.
--   What was spent goes on counting, as far back as a ledger reaches: the later end of
--   its sub-window is taken, which errs on the strict side.
-- KEYS[1] totals: string, thr:{name}:3:key:<scope>:<key>
-- KEYS[2...] ledgers: sorted set thr:{name}:3:ledger:<scope>:<key>:<window> of each limit,
--   then of each window that the totals tell of
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] grace: us (0..400 days) after its slot that a booking still counts
-- ARGV[3] count: of limits, 1..99
-- ARGV[4...] limits of KEYS in order: "units window precision", see read_calendar; then
--   for each other key its window in us
-- Reply[1] adopted: how many ledgers were built or changed
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_LEDGERS 1 <windows>
-- Cost: O(entries)
-- Expiry: span + grace + 30 s
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
-- How long after the beginning of its sub-window a start counts.
local function span_of(window, precision)
  if precision == 1 then
    return window
  end
  return window - 1 - (window - 1) % precision + 2 * precision
end
-- Reads all totals of a scope key's string, see read_calendar, by their windows. Nil
-- where there is none.
local function totals_in(text, key)
  if text == '' then
    return nil
  end
  local seen, expire, rest = string.match(text, '^(%d+) (%d+)(.*)$')
  if not seen then
    return nil, redis.error_reply('THROTTLE_STATE ' .. key)
  end
  local known = { seen = tonumber(seen), expire = seen + expire, of = {}, order = {} }
  for mark, window, precision, spent, booked, open, units, since, missed in
    string.gmatch(rest, '([ |])(%d+):(%d+):(%d+):(%d+):(-?%d+):(%d+):?(%d*):?(%d*)') do
    local ledger = {
      window = window, precision = tonumber(precision), spent = tonumber(spent), booked = tonumber(booked),
      open = tonumber(open), open_units = tonumber(units), since = tonumber(since), missed = tonumber(missed),
    }
    if mark == ' ' then
      ledger.open = known.seen - ledger.open
    end
    if not known.of[window] then
      known.order[#known.order + 1] = window
    end
    known.of[window] = ledger
  end
  return known
end
-- Adds a ledger's units to entries ('s', 'b'), by the sub-windows of another ledger: what
-- was spent by the later end of its sub-window, what is booked where it begins. Where both
-- ledgers have a booking, it is taken once. most is how many spent units are wanted, the
-- newest; those that have left the ledger by now started before that at the latest.
-- Without it all are taken.
-- Where the end of a sub-window is ahead, what was spent there started between now and
-- then, or before: the units are entered at both, and once for each window between, which
-- may count them twice; a ledger's own entries are as they are to be. No start is granted more than 10 s ahead, as far as this is
-- concerned. Returns the error to reply.
local function entries_of(ledger, limit, now, grace, most, entries)
  local precision, window = limit.precision, tonumber(limit.window)
  local edge = now - now % ledger.precision - span_of(tonumber(ledger.window), ledger.precision)
  local same = ledger.window == limit.window and ledger.precision == precision
  local function spend(at, units)
    local last, bucket = at + ledger.precision - 1, nil
    at = last
    if last > now and not same then
      at, last = now, math.min(last, now + 10000000)
    end
    while at do
      if bucket ~= at - at % precision then
        bucket = at - at % precision
        entries.s[bucket] = (entries.s[bucket] or 0) + units
      end
      at = at < last and math.min(at + window, last)
    end
  end
  local members = redis.call('ZRANGEBYSCORE', ledger.key, '-inf', '+inf')
  if ledger.open_units > 0 then
    members[#members + 1] = string.format('s%d:%d', ledger.open, ledger.open_units)
  end
  local booked, left = {}, most or 9007199254740992
  for i = #members, 1, -1 do
    local kind, at, units = string.match(members[i], '^([sb])(%d+):(%d+)$')
    if not kind then
      return redis.error_reply('THROTTLE_STATE ' .. ledger.key)
    end
    at, units = tonumber(at), tonumber(units)
    if kind == 's' and at > edge and left > 0 then
      units = math.min(units, left)
      left = left - units
      spend(at, units)
    elseif kind == 'b' and at > now - grace - ledger.precision then
      at = at - at % precision
      booked[at] = (booked[at] or 0) + units
    end
  end
  if most and left > 0 then
    spend(edge, left)
  end
  for at, units in pairs(booked) do
    entries.b[at] = math.max(entries.b[at] or 0, units)
  end
end
-- Makes entries, as entries_of has them, those of a ledger, without those that count
-- no more, and returns its totals. The newest sub-window of spent units is the open one.
-- The growing write comes first: Redis refuses it where it is out of memory.
local function rewrite(ledger, entries, now, grace)
  local precision = ledger.precision
  local edge = now - now % precision - span_of(tonumber(ledger.window), precision)
  local totals = { window = ledger.window, precision = precision, spent = 0, booked = 0, open = 0, open_units = 0 }
  local added, is = {}, {}
  local function add(kind, at, units)
    local member = string.format('%s%d:%d', kind, at, units)
    added[#added + 1] = string.format('%d', at)
    added[#added + 1] = member
    is[member] = true
  end
  for at, units in pairs(entries.s) do
    if at > edge and units > 0 then
      totals.spent = totals.spent + units
      if at > totals.open then
        local before, units_before = totals.open, totals.open_units
        totals.open, totals.open_units = at, units
        at, units = before, units_before
      end
      if units > 0 then
        add('s', at, units)
      end
    end
  end
  for at, units in pairs(entries.b) do
    if at > now - grace - precision and units > 0 then
      totals.booked = totals.booked + units
      add('b', at, units)
    end
  end
  local before = redis.call('ZRANGEBYSCORE', ledger.key, '-inf', '+inf')
  for i = 1, #added, 1000 do
    redis.call('ZADD', ledger.key, unpack(added, i, math.min(i + 999, #added)))
  end
  for i = 1, #before do
    if not is[before[i]] then
      redis.call('ZREM', ledger.key, before[i])
    end
  end
  return totals
end
local totals_key, keys, args = KEYS[1], { unpack(KEYS, 2) }, { unpack(ARGV, 4) }
local time = clock(ARGV[1])
local grace = integer(ARGV[2], 0, 34560000000000)
local count = integer(ARGV[3], 1, 99)
if not (time and grace and count) or count > #keys or #keys ~= #args then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end

local known, wrong = totals_in(redis.call('GET', totals_key) or '', totals_key)
if wrong then
  return wrong
elseif not known then
  return { 0 }
end
local now = math.max(time, known.seen - time <= 30000000 and known.seen or 0)
local limits = {}
for i = 1, #keys do
  local units, window, precision, how = '0', args[i], nil, nil
  if i <= count then
    units, window, precision, how = string.match(args[i], '^(%d+) (%d+) (%d+) ?([nsx]*)$')
  end
  local length = integer(window or '', 1000, 34560000000000)
  if not length or tonumber(units) > 9007199254740992
    or i <= count and (tonumber(precision) < 1 or tonumber(precision) > length) then
    return redis.error_reply('THROTTLE_ARGUMENT limit')
  end
  limits[i] = { key = keys[i], window = window, precision = tonumber(precision), told = how and string.match(how, 'x') }
end
-- Another call may have begun to count on a ledger that this one does not know of.
local given, windows = {}, {}
for i = 1, #limits do
  given[limits[i].window] = true
end
for i = 1, #known.order do
  windows[i] = known.order[i]
  wrong = wrong or not given[windows[i]] and not known.of[windows[i]].since
end
if wrong then
  return redis.error_reply('THROTTLE_LEDGERS 1 ' .. table.concat(windows, ' '))
end

-- The ledger that is counted on now and tells most of a window: the shortest that is
-- as long, else the longest.
local function source_of(limit)
  local best
  for i = 1, #limits do
    local other = known.of[limits[i].window]
    if other and not other.since and limits[i].window ~= limit.window then
      other.key = limits[i].key
      local length, least = tonumber(limits[i].window), tonumber(limit.window)
      local longest = best and tonumber(best.window) or 0
      if not best or (length >= least and (longest < least or length < longest)) or (length < least and length > longest) then
        best = other
      end
    end
  end
  return best
end

local adopted, span = {}, 0
for i = 1, count do
  local limit = limits[i]
  local own = known.of[limit.window]
  if own and own.precision > limit.precision and not limit.told then
    limit.precision = own.precision
  end
  span = math.max(span, span_of(tonumber(limit.window), limit.precision))
  if not own or own.since or own.precision ~= limit.precision then
    local entries = { s = {}, b = {} }
    local source = (not own or own.since) and source_of(limit)
    -- What the totals do not tell of is replaced, but only if it is a ledger.
    local there = own or { window = limit.window, precision = limit.precision, open = 0, open_units = 0 }
    there.key = limit.key
    wrong = entries_of(there, limit, now, grace, nil, own and entries or { s = {}, b = {} })
    if source and not wrong then
      wrong = entries_of(source, limit, now, grace, own and own.missed, entries)
    end
    if wrong then
      return wrong
    end
    adopted[#adopted + 1] = { limit = limit, entries = entries }
  end
end
if #adopted == 0 then
  return { 0 }
end
for i = 1, #adopted do
  local limit = adopted[i].limit
  known.of[limit.window] = rewrite(limit, adopted[i].entries, now, grace)
  known.order[#known.order + 1] = limit.window
end
local expire = math.max(known.expire, now + span + grace + 30000000)
local text, aside, done = string.format('%d %d', now, expire - now), '', {}
for i = 1, #known.order do
  local ledger = known.of[known.order[i]]
  if not done[ledger.window] then
    done[ledger.window] = true
    local totals = string.format('%s:%d:%d:%d', ledger.window, ledger.precision, ledger.spent, ledger.booked)
    if ledger.since then
      aside = aside .. string.format('|%s:%d:%d:%d:%d', totals, ledger.open, ledger.open_units, ledger.since, ledger.missed)
    else
      text = text .. string.format(' %s:%d:%d', totals, now - ledger.open, ledger.open_units)
    end
  end
end
local lasts = string.format('%d', math.ceil((expire - now) / 1000))
redis.call('SET', totals_key, text .. aside, 'PX', lasts)
for i = 1, #limits do
  redis.call('PEXPIRE', limits[i].key, lasts)
end
return { #adopted }
