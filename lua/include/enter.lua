-- Enters a change of units into every ledger of the calendar, at the sub-window
-- of start, as spent ('s') or booked ('b'). Nothing is written before
-- write_calendar. Giving back takes at most what is there, and nothing from an
-- entry that counts no more.
-- include: edit
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
