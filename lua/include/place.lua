-- The earliest start at or after from at which every ledger has room for weight,
-- and the index of the ledger that moved it last (0: none did). Each ledger is
-- asked in turn until none moves the start.
-- include: earliest
local function place(calendar, weight, from, spent_only)
  local ledgers = calendar.ledgers
  local count = #ledgers
  local start, holder, agreed, i = from, 0, 0, 1
  while agreed < count do
    local at = earliest(ledgers[i], calendar, weight, start, spent_only)
    if at > start then
      start, holder, agreed = at, i, 0
    end
    agreed = agreed + 1
    i = i < count and i + 1 or 1
  end
  return start, holder
end
