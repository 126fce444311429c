-- Looks after the ledgers before a decision: counts those whose totals are not
-- known, and about four times a window, when the keys' expiry is due to be
-- renewed, takes out what has left.
-- include: trim
-- include: load
local function tend(calendar)
  local now, grace = calendar.now, calendar.grace
  for s = 1, #calendar.scopes do
    local scope = calendar.scopes[s]
    local due = scope.expire < now + scope.span + grace + 30000000
    for i = scope.first, scope.last do
      local ledger = calendar.ledgers[i]
      if ledger.unknown then
        load(ledger, now, grace)
      elseif due then
        trim(ledger, now, grace)
      end
    end
  end
end
