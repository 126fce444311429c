-- Makes entries, as entries_of has them, those of a ledger, without those that count
-- no more, and returns its totals. The newest sub-window of spent units is the open one.
-- The growing write comes first: Redis refuses it where it is out of memory.
-- include: span_of
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
