-- Entries: sub-windows and their units in order, 32 digits each: 16 of the sub-window, 16 of the units. Digits of one
-- length compare as texts do, so a sub-window is found without reading the others.
local ENTRY = '%016d%016d'

-- The place before which a sub-window belongs, and its units if it is there.
local function find(text, at)
  local digits = format('%016d', at)
  local low, high = 0, #text / 32 -- entries before low are smaller, from high on they are not
  while low < high do
    local middle = floor((low + high) / 2)
    if sub(text, middle * 32 + 1, middle * 32 + 16) < digits then low = middle + 1 else high = middle end
  end
  if sub(text, low * 32 + 1, low * 32 + 16) == digits then
    return low * 32, tonumber(sub(text, low * 32 + 17, low * 32 + 32))
  end
  return low * 32, nil
end

-- Changes the units of a sub-window, never below 0. Returns the text and by how many units it changed.
local function add(text, at, units)
  if units > 0 and (text == '' or sub(text, -32, -17) < format('%016d', at)) then return text .. format(ENTRY, at, units), units end
  local place, there = find(text, at)
  if not there then
    if units <= 0 then return text, 0 end
    return sub(text, 1, place) .. format(ENTRY, at, units) .. sub(text, place + 1), units
  end
  local sum = max(0, there + units)
  local entry = sum > 0 and format(ENTRY, at, sum) or ''
  return sub(text, 1, place) .. entry .. sub(text, place + 33), sum - there
end

-- Entries as two lists.
local function list_of(text, ats, units)
  for i = 1, #text, 32 do
    ats[#ats + 1], units[#units + 1] = tonumber(sub(text, i, i + 15)), tonumber(sub(text, i + 16, i + 31))
  end
end
return find, add, list_of
