-- What a lane is called among those that are held: its head's arrival, a blank, its name.
local function held_as(line)
  local since, lane = line.since, line.lane
  return since .. ' ' .. lane
end
