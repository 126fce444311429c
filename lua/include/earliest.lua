-- The earliest start at or after from at which a ledger has room for weight, with
-- or without regard to what is booked. Where all units on the ledger leave room,
-- no entry is read.
-- include: trim
-- include: load
-- include: slide
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
