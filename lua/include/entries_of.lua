-- Adds a ledger's units to entries ('s', 'b'), by the sub-windows of another ledger: what
-- was spent by the later end of its sub-window, what is booked where it begins. Where both
-- ledgers have a booking, it is taken once. most is how many spent units are wanted, the
-- newest; those that have left the ledger by now started before that at the latest.
-- Without it all are taken.
-- Where the end of a sub-window is ahead, what was spent there started between now and
-- then, or before: the units are entered at both, and once for each window between, which
-- may count them twice; a ledger's own entries are as they are to be. No start is granted more than 10 s ahead, as far as this is
-- concerned. Returns the error to reply.
-- include: span_of
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
