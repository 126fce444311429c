-- Takes the totals of one ledger out of those that its scope key's string has
-- (scope.live). Returns whether it has them, in a precision that the call can go on
-- with: the coarser of the two, unless the limit is to have just the one it tells.
local function totals_of(scope, ledger)
  local live = scope.live
  local window, precision, spent, booked, open, open_units, after =
    string.match(live, '^ (%d+):(%d+):(%d+):(%d+):(-?%d+):(%d+)()')
  local before = 1
  if window ~= ledger.window then
    before, precision, spent, booked, open, open_units, after =
      string.match(live, '() ' .. ledger.window .. ':(%d+):(%d+):(%d+):(-?%d+):(%d+)()')
  end
  if not spent then
    return false
  end
  precision = tonumber(precision)
  if precision ~= ledger.precision then
    if precision < ledger.precision or ledger.told then
      return false
    end
    ledger.precision = precision
  end
  ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
  ledger.open, ledger.open_units = scope.seen - open, tonumber(open_units)
  if ledger.spent + ledger.booked == ledger.open_units then
    ledger.bare = true
  end
  if before == 1 and after > #live then
    scope.live = ''
  else
    scope.live = string.sub(live, 1, before - 1) .. string.sub(live, after)
  end
  return true
end
