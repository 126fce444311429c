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
