-- Ramps: units of a quota that grow from period to period. The text "50&100&200:739938:1:0" has the units of each step
-- (all of them, written by Go), the first period, how many periods a step lasts, and the period in which the ramp was
-- held, 0 for none.
local ramps = {}

-- The ramp of a text; nil if the text is no ramp.
function ramps.parse(text)
  local steps, first, every, held = match(text, '^([1-9][%d&]*):(%d+):([1-9]%d*):(%d+)$')
  if not steps then return nil end
  local ramp = { first = tonumber(first), every = tonumber(every), held = held == '0' and NEVER or tonumber(held) }
  for units in gmatch(steps, '%d+') do ramp[#ramp + 1] = tonumber(units) end
  return ramp
end

-- The units of a period; 0 before the ramp's first period.
function ramps.units(ramp, period)
  local step = floor((min(period, ramp.held) - ramp.first) / ramp.every) + 1
  return step < 1 and 0 or ramp[min(step, #ramp)]
end

-- The first period, not before the given one, that has at least the given units; nil if none has.
function ramps.takes(ramp, units, period)
  if ramps.units(ramp, period) >= units then return period end
  for i = 1, #ramp do
    if ramp[i] >= units then
      period = ramp.first + (i - 1) * ramp.every
      return period <= ramp.held and period or nil
    end
  end
end
return ramps
