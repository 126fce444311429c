-- Entries: sub-windows and their units as text, in order, 32 digits each: 16 of the sub-window, 16 of the units. With
-- equally many digits, numbers compare as texts do, so a search need not parse the entries.
local ENTRY = '%016d%016d'

-- How many bytes of entries stand before a sub-window, and its units if it has an entry.
local function find(text, at)
  local digits, last = format('%016d', at), sub(text, -32, -17)
  if last < digits then return #text, nil end
  if last == digits then return #text - 32, tonumber(sub(text, -16)) end
  local low, high = 0, #text / 32 - 1 -- entries before low are smaller, from high on they are not
  if sub(text, 1, 16) >= digits then high = 0 end
  while low < high do
    local middle = floor((low + high) / 2)
    if sub(text, middle * 32 + 1, middle * 32 + 16) < digits then low = middle + 1 else high = middle end
  end
  if sub(text, low * 32 + 1, low * 32 + 16) == digits then
    return low * 32, tonumber(sub(text, low * 32 + 17, low * 32 + 32))
  end
  return low * 32, nil
end

-- How many steps the call has left: it takes one for each entry that it reads or skips, and more for longer work. A
-- call that has used up its steps leaves the rest to the next call.
local budget = { left = tonumber(steps) }

-- Changes the units of a sub-window, never below 0. Returns the new text, and by how many units it changed.
local function add(text, at, units)
  budget.left = budget.left - #text / 128 -- building the new text takes longer than the search
  if units > 0 and (text == '' or sub(text, -32, -17) < format('%016d', at)) then
    return text .. format(ENTRY, at, units), units
  end
  local place, there = find(text, at)
  if not there then
    if units <= 0 then return text, 0 end
    return sub(text, 1, place) .. format(ENTRY, at, units) .. sub(text, place + 1), units
  end
  local sum = max(0, there + units)
  local entry = sum > 0 and format(ENTRY, at, sum) or ''
  return sub(text, 1, place) .. entry .. sub(text, place + 33), sum - there
end

local numbers = {} -- of units, by their digits: many entries have the same
-- Appends entries to two lists.
local function list_of(text, ats, units)
  local n = #ats
  for i = 1, #text, 32 do
    local digits = sub(text, i + 16, i + 31)
    local number = numbers[digits]
    if not number then
      number = tonumber(digits)
      numbers[digits] = number
    end
    n = n + 1
    ats[n], units[n] = tonumber(sub(text, i, i + 15)), number
  end
  budget.left = budget.left - #text / 16
end
-- Returns the same entries in sub-windows that are longer by a factor.
local function coarser(text, times)
  local ats, units, parts, sum = {}, {}, {}, 0
  list_of(text, ats, units)
  for i = 1, #ats do
    local at = floor(ats[i] / times)
    sum = sum + units[i]
    if i == #ats or floor(ats[i + 1] / times) > at then
      if sum > 0 then parts[#parts + 1] = format(ENTRY, at, sum) end
      sum = 0
    end
  end
  return table.concat(parts)
end

-- Adds units to entries in lists. Returns by how many entries the lists are longer.
local function put(list, at, units)
  local i = #list.at
  while i > 0 and list.at[i] > at do i = i - 1 end
  if list.at[i] ~= at then
    table.insert(list.at, i + 1, at)
    table.insert(list.units, i + 1, units)
    return 1
  elseif list.units[i] + units > 0 then
    list.units[i] = list.units[i] + units
    return 0
  end
  table.remove(list.at, i)
  table.remove(list.units, i)
  return -1
end

return find, add, budget, list_of, coarser, put
