-- Adds a ledger's units that were entered after an instant to entries ('s', 'b'), by
-- the sub-windows of another ledger: what was spent by the later end of its sub-window,
-- what is booked where it begins. Where both ledgers have a booking, it is taken once.
-- Where that end is ahead, what was spent may have started long before: the units are
-- entered once for each window between. No start is granted more than 10 s ahead, as far
-- as this is concerned. What has left the ledger is left out. Returns the error to reply.
-- include: span_of
local function entries_of(ledger, limit, now, grace, after, entries)
  local precision, window = limit.precision, tonumber(limit.window)
  local edge = now - now % ledger.precision - span_of(tonumber(ledger.window), ledger.precision)
  local members = redis.call('ZRANGEBYSCORE', ledger.key, '-inf', '+inf')
  if ledger.open_units > 0 then
    members[#members + 1] = string.format('s%d:%d', ledger.open, ledger.open_units)
  end
  local booked = {}
  for i = 1, #members do
    local kind, at, units = string.match(members[i], '^([sb])(%d+):(%d+)$')
    if not kind then
      return redis.error_reply('THROTTLE_STATE ' .. ledger.key)
    end
    at, units = tonumber(at), tonumber(units)
    if kind == 's' and at > edge and at + ledger.precision > after then
      at = at + ledger.precision - 1
      local more = true
      while more do
        local bucket = at - at % precision
        entries.s[bucket] = (entries.s[bucket] or 0) + units
        more = at - window >= now
        at = math.min(at - window, now + 10000000)
      end
    elseif kind == 'b' and at > now - grace - ledger.precision then
      at = at - at % precision
      booked[at] = (booked[at] or 0) + units
    end
  end
  for at, units in pairs(booked) do
    entries.b[at] = math.max(entries.b[at] or 0, units)
  end
end
