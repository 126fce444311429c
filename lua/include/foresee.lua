-- What a shadow would have done to a job that starts then: the index of the ledger
-- in shadow that would have held it back the longest and the earliest start it
-- would have had; 0 and the start if none would. Nothing of it is charged yet.
-- include: earliest
local function foresee(calendar, weight, start)
  local holder, latest = 0, start
  for i = 1, #calendar.ledgers do
    local ledger = calendar.ledgers[i]
    if ledger.shadow then
      local at = weight > ledger.units and start + ledger.span or earliest(ledger, calendar, weight, start, false)
      if at > latest then
        holder, latest = i, at
      end
    end
  end
  return holder, latest
end
