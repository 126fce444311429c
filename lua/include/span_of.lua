-- How long after the beginning of its sub-window a start counts.
local function span_of(window, precision)
  if precision == 1 then
    return window
  end
  return window - 1 - (window - 1) % precision + 2 * precision
end
