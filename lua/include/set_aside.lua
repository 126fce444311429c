-- The totals that the next write does not count on: those that were set aside before
-- (scope.aside), and those that no ledger of this call has taken (scope.live). They are
-- kept, with the instant since which they are not and the units that were charged since
-- (see write_calendar), for adopt to bring them up to date, until all of it has left its
-- window.
-- include: span_of
local function set_aside(scope, now, grace)
  local aside = {}
  for totals in string.gmatch(scope.aside, '|([^|]*)') do
    local window, precision, since = string.match(totals, '^(%d+):(%d+):.*:(%d+):%d+$')
    if window and since + span_of(tonumber(window), tonumber(precision)) + grace + 30000000 >= now then
      aside[#aside + 1] = '|' .. totals
    end
  end
  for totals, open, units in string.gmatch(scope.live, ' (%d+:%d+:%d+:%d+):(-?%d+):(%d+)') do
    aside[#aside + 1] = string.format('|%s:%d:%s:%d:0', totals, scope.seen - open, units, scope.seen)
  end
  return table.concat(aside)
end
