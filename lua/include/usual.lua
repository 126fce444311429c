-- The usual case, decided and written straight on: nothing waits, no scope key is paused or has limits of its own, nothing
-- is booked, and all limits have room for all that is counted. It needs none of what is defined below, which is most of
-- what a call costs. What it finds to be another case it leaves alone, with nothing written.

-- A scope key's windows, in the order of its limits: units, window, precision, what is spent, its entries, the last of
-- them, and what is added; nil if it is another case.
local function usual_key(name, text)
  local scope = scope_of(name)
  if scope.mode ~= 'e' then return nil end
  local limits = scope.limits
  local key = { name, text, 0 }
  if not text then
    if call('EXISTS', prefix .. 'key:' .. name) == 1 then return nil end
    for i = 1, #limits do
      local limit = limits[i]
      if limit.units < 0 then return nil end
      key[i + 3] = { limit.units, limit.window, limit.precision, 0, '', -1, 0 }
    end
    return key
  end
  local expire, seen, at = match(text, '^(%d+) (%d+) 0 0 %-\n()')
  if not at or seen + 0 > now then return nil end
  key[3] = expire + 0
  for i = 1, #limits do
    local limit = limits[i]
    local window, precision, spent, tail, from = match(text, '^(%d+) (%d+) (%d+) 0 (%d+) 0 0 0\n()', at)
    if not from or window ~= limit.window_text or limit.units < 0 then return nil end
    at, precision = from + tail, precision == limit.precision_text and limit.precision or precision + 0
    local last, current = tonumber(sub(text, at - 32, at - 17)), floor(now / precision)
    if last > current or tail + 0 > 512 then return nil end
    -- All has left if the last has: then it counts anew, in the precision of the limit.
    local n = precision == 1 and limit.window or math.ceil(limit.window / precision) + 1
    if last + n <= current then
      key[i + 3] = { limit.units, limit.window, limit.precision, 0, '', -1, 0 }
    else
      key[i + 3] = { limit.units, limit.window, precision, spent + 0, sub(text, from, at - 1), last, 0 }
    end
  end
  if at <= #text then return nil end -- a window that others count
  return key
end

local function save_usual(key)
  local parts, needed = '', now
  for i = 4, #key do
    local w = key[i]
    local precision, tail, current = w[3], w[5], floor(now / w[3])
    if w[6] == current then
      tail = sub(tail, 1, -17) .. format('%016d', tonumber(sub(tail, -16)) + w[7])
    else
      tail = tail .. format('%016d%016d', current, w[7])
    end
    needed = max(needed, now + w[2] + 2 * precision)
    parts = parts .. format('%d %d %d 0 %d 0 0 0\n%s', w[2], precision, w[4], #tail, tail)
  end
  needed = needed + lookahead + grace + 60000000
  if key[3] >= needed then
    call('SET', prefix .. 'key:' .. key[1], format('%d %d 0 0 -\n', key[3], now) .. parts, 'KEEPTTL')
  else
    local expire = needed + floor((needed - now) / 4)
    call('SET', prefix .. 'key:' .. key[1], format('%d %d 0 0 -\n', expire, now) .. parts, 'PX', format('%d', (expire - now) / 1000))
  end
end
