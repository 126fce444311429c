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
