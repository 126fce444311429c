-- Takes the totals of one ledger out of those that its scope key's string has
-- (scope.others). Returns whether it has them.
local function totals_of(scope, ledger)
  local others = scope.others
  if others == '' then
    return false
  end
  local window, spent, booked, open, open_units, after =
    string.match(others, '^ (%d+):(%d+):(%d+):(-?%d+):(%d+)()')
  local before = 1
  if window ~= ledger.window then
    before, spent, booked, open, open_units, after =
      string.match(others, '() ' .. ledger.window .. ':(%d+):(%d+):(-?%d+):(%d+)()')
  end
  if not spent then
    return false
  end
  ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
  ledger.open, ledger.open_units = scope.seen - open, tonumber(open_units)
  if ledger.spent + ledger.booked == ledger.open_units then
    ledger.bare = true
  end
  if before == 1 and after > #others then
    scope.others = ''
  else
    scope.others = string.sub(others, 1, before - 1) .. string.sub(others, after)
  end
  return true
end
