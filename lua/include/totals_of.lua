-- Takes the totals of one ledger out of those that its scope key's string has
-- (scope.others), where it has them.
local function totals_of(scope, ledger)
  local others = scope.others
  if others == '' then
    return
  end
  local before, window, spent, booked, open, open_units, after =
    string.match(others, '^() (%d+):(%d+):(%d+):(%d+):(%d+)()')
  if window ~= ledger.window then
    before, spent, booked, open, open_units, after =
      string.match(others, '() ' .. ledger.window .. ':(%d+):(%d+):(%d+):(%d+)()')
  end
  if spent then
    ledger.spent, ledger.booked = tonumber(spent), tonumber(booked)
    ledger.open, ledger.open_units = tonumber(open), tonumber(open_units)
    ledger.unknown, ledger.bare = false, ledger.spent + ledger.booked == ledger.open_units
    scope.others = string.sub(others, 1, before - 1) .. string.sub(others, after)
  end
end
