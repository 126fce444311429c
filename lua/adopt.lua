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
-- include: integer
-- include: clock
-- include: span_of
-- include: totals_in
-- include: entries_of
-- include: rewrite
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
