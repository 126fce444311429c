-- When to look again at a head that has its place at start: at the time at, but where what
-- is only promised is in the way, and may not come, within a second or the grace.
-- include: place
local function look_again(calendar, at, weight, start, lookahead)
  local spent = place(calendar, weight, calendar.now, true)
  if spent < start then
    return math.min(at, math.max(calendar.now + math.min(calendar.grace, 1000000), spent - lookahead))
  end
  return at
end
