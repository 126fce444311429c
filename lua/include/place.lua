-- The earliest start at or after from, and after the end of a pause, at which every
-- ledger that holds jobs back has room for weight, and the index of what moved it
-- last: 0 nothing, a ledger, or calendar.closer. Each ledger is asked in turn until
-- none moves the start.
-- include: load
-- include: earliest
local function place(calendar, weight, from, spent_only)
  local ledgers = calendar.ledgers
  local count = #ledgers
  local start, holder, agreed, i = from, 0, 0, 1
  if calendar.opens > from then
    start, holder = calendar.opens, calendar.closer
    local never = ledgers[holder]
    if never then -- a limit of 0
      if not never.loaded then
        load(never, calendar.now, calendar.grace)
      end
      return start, holder
    end
  end
  while agreed < count do
    local ledger = ledgers[i]
    local at = ledger.free and start or earliest(ledger, calendar, weight, start, spent_only)
    if at > start then
      start, holder, agreed = at, i, 0
    end
    agreed = agreed + 1
    i = i < count and i + 1 or 1
  end
  return start, holder
end
