-- The earliest start of a job that all limits allow.
-- uses: edges, kinds, ramp, entries, ledger, key

-- The i-th spent entry, oldest first: its sub-window and units. Reads the log and then the tail, a chunk at a time.
local CHUNK = 512
local function spent_at(key, ledger, i)
  local old = ledger.old
  if not old then
    old = { at = {}, units = {}, read = ledger.passed, of_tail = 0 }
    ledger.old = old
  end
  while i > #old.at and (old.read < ledger.logged or old.of_tail < #ledger.tail) do
    local chunk
    if old.read < ledger.logged then
      chunk = read_log(key, ledger, old.read, CHUNK)
      old.read = min(old.read + CHUNK, ledger.logged)
    else
      chunk = sub(ledger.tail, old.of_tail + 1, old.of_tail + CHUNK)
      old.of_tail = old.of_tail + #chunk
    end
    list_of(chunk, old.at, old.units)
  end
  return old.at[i], old.units[i]
end

-- Appends the entries after a sub-window to two lists, and returns the sum of their units.
local function behind(text, x, ats, units)
  local digits, sum = format('%016d', x), 0
  local i = #text - 31
  while i > 0 and sub(text, i, i + 15) > digits do i = i - 32 end
  list_of(sub(text, i + 32), ats, units)
  for j = 1, #units do sum = sum + units[j] end
  return sum
end

-- The units in the window that ends now, and the booked units. A grant whose start is still ahead counts as booked.
local function uses(key, ledger)
  trim(key, ledger)
  local later = behind(ledger.tail, sub_window(ledger, now + key.shift), {}, {})
  return ledger.spent - later, ledger.booked + later
end

-- The booked entries, as lists.
local NONE = { at = {}, units = {} }
local function promised_in(ledger)
  if not ledger.promised then
    ledger.promised = { at = {}, units = {} }
    list_of(ledger.ahead, ledger.promised.at, ledger.promised.units)
  end
  return ledger.promised
end

-- The window that ends at a sub-window y, which a search moves on. sum: the units in it; s_in and s_out: the spent
-- entries that enter and leave it next; b_in and b_out: the booked ones. It begins with all entries, so that it reads
-- only those that leave.
local function window_at(ledger, x, booked)
  local w = { y = x, booked = booked, at = {}, units = {}, s_in = 1, s_out = 1, b_in = #booked.at + 1, b_out = 1 }
  w.sum = ledger.spent - behind(ledger.tail, x, w.at, w.units) + (booked == NONE and 0 or ledger.booked)
  while w.b_in > 1 and booked.at[w.b_in - 1] > x do
    w.b_in = w.b_in - 1
    w.sum = w.sum - booked.units[w.b_in]
  end
  budget.left = budget.left - (#booked.at + 1 - w.b_in)
  return w
end

-- Moves a window on until the cost fits into every window that contains its end, x. Returns x.
local function slide(key, ledger, w, x, room)
  local n, y, booked = ledger.n, x, w.booked
  local s_at, s_units, b_at, b_units = w.at, w.units, booked.at, booked.units
  local sum, s_in, s_out, b_in, b_out = w.sum, w.s_in, w.s_out, w.b_in, w.b_out
  local began = s_in + s_out + b_in + b_out
  while true do
    while s_at[s_in] and s_at[s_in] <= y do
      sum, s_in = sum + s_units[s_in], s_in + 1
    end
    while b_at[b_in] and b_at[b_in] <= y do
      sum, b_in = sum + b_units[b_in], b_in + 1
    end
    local oldest, units = spent_at(key, ledger, s_out)
    while oldest and oldest + n <= y do
      sum, s_out = sum - units, s_out + 1
      oldest, units = spent_at(key, ledger, s_out)
    end
    local promised = b_at[b_out]
    while promised and max(promised, ledger.current) + n <= y do
      sum, b_out = sum - b_units[b_out], b_out + 1
      promised = b_at[b_out]
    end
    if sum > room then
      -- Until enough units have left.
      if not oldest and not promised then error('FOREIGN key:' .. key.name, 0) end -- its sums exceed its entries
      y = min(oldest or NEVER, promised and max(promised, ledger.current) or NEVER) + n
      x = y
    else
      if y == x then w.y, w.sum, w.s_in, w.s_out, w.b_in, w.b_out = x, sum, s_in, s_out, b_in, b_out end
      -- The next window that ends later and still contains x.
      local entering = min(s_at[s_in] or NEVER, b_at[b_in] or NEVER)
      if entering >= x + n then
        budget.left = budget.left - (s_in + s_out + b_in + b_out - began)
        return x
      end
      y = entering
    end
  end
end

local function copy_of(w)
  return {
    y = w.y, booked = w.booked, at = w.at, units = w.units, sum = w.sum,
    s_in = w.s_in, s_out = w.s_out, b_in = w.b_in, b_out = w.b_out,
  }
end

-- The first sub-window from x on where the cost fits into every window that contains the sub-window. For the same room,
-- a search goes on where an earlier search ended that began before x: there is no room in between, unless a booking is
-- taken back. For each room two windows are kept: where the last search ended that found no room at its x, and where
-- the last search of all ended.
local function slide_on(key, ledger, x, room, promises)
  if not promises then return slide(key, ledger, window_at(ledger, x, NONE), x, room) end
  local known = ledger.searches[room] or { from = x, to = x }
  ledger.searches[room] = known
  if known[1] and known.from <= x and x < known.to then
    known.to = slide(key, ledger, known[1], known.to, room)
    return known.to
  end
  local w = known[2]
  if not w or w.y > x then w = window_at(ledger, x, promised_in(ledger)) end
  local y = slide(key, ledger, w, x, room)
  known[2] = w
  if y > x then known.from, known.to, known[1] = x, y, copy_of(w) end
  return y
end

-- The sub-window from which on running jobs occupy no more than room. A job that was granted for later occupies its
-- place already, since running jobs may renew until then.
local function places_from(key, ledger, room)
  local left, i, at, units = ledger.spent, 0, nil, nil
  while left > room do
    i = i + 1
    at, units = spent_at(key, ledger, i)
    if not at then return 0 end
    left = left - units
  end
  budget.left = budget.left - i
  return at and at + ledger.n or 0
end

-- The units of a limit that are in force at an instant.
local function units_at(key, limit, at)
  if not limit.ramp then return limit.units end
  local ledger = ledger_of(key, limit.span)
  return ramps.units(limit.ramp, ledger and sub_window(ledger, time_of(key, at)) or sub_window(limit, at))
end

-- How many of the given units the upstream serves, at least one.
local function served_of(key, units)
  if key.less == 0 or units <= 0 then return units end
  local part = 1000 - key.less
  return max(1, floor(units / 1000) * part + floor(units % 1000 * part / 1000))
end

-- How many units of a limit the upstream serves at an instant.
local function served(key, limit, at) return served_of(key, units_at(key, limit, at)) end

-- How many units of a limit without a ramp may count beside a job, -1 if the job never fits. A job that is heavier than
-- the served share starts where nothing else counts.
local function room_of(key, limit, cost)
  if cost > limit.units then return -1 end
  return max(0, served_of(key, limit.units) - cost)
end

-- The first start at or after an instant that one ledger allows. promises: whether bookings count.
local function earliest_in(key, ledger, at, room, promises)
  if room < 0 then return NEVER end
  local booked = promises and ledger.booked or 0
  if ledger.spent + booked <= room then return at end
  trim(key, ledger)
  booked = promises and ledger.booked or 0
  if ledger.spent + booked <= room then return at end
  local x = sub_window(ledger, time_of(key, at))
  ledger.current = sub_window(ledger, now + key.shift)
  local y = ledger.kind.renewed and max(x, places_from(key, ledger, room)) or x
  y = slide_on(key, ledger, y, room, promises)
  if x == y then return at end
  return start_of(ledger, y) - key.offset
end

-- The units of a period of a quota. Units booked for a period that is over count in the present period.
local function in_period(key, ledger, period, promises)
  local _, spent = find(ledger.tail, period)
  local units = spent or 0
  if not promises then return units end
  local current, booked = sub_window(ledger, now + key.shift), promised_in(ledger)
  for i = 1, #booked.at do
    if max(booked.at[i], current) == period then units = units + booked.units[i] end
  end
  budget.left = budget.left - #booked.at
  return units
end

-- The first start at or after an instant that a ramp allows: in the first period whose units are no fewer than the
-- cost, and which has room for the cost beside its charges. If this period lies beyond the known edges, the start is
-- the last known edge: a pull looks at the job again then.
local function climb(key, limit, at, cost, promises)
  local ledger = ledger_of(key, limit.span)
  trim(key, ledger)
  local first = sub_window(ledger, time_of(key, at))
  local period = ramps.takes(limit.ramp, cost, first)
  while period do
    local room = max(0, served_of(key, ramps.units(limit.ramp, period)) - cost)
    if in_period(key, ledger, period, promises) <= room then break end
    period = ramps.takes(limit.ramp, cost, period + 1)
  end
  if not period then return NEVER end
  if period == first then return at end
  local edges = ledger.edges
  local last = edge_of(edges, edges.first + edges.count - 1)
  return max(at, min(start_of(ledger, period) - key.offset, last))
end

-- The first start at or after an instant that one limit allows.
local function under(key, limit, at, cost, promises)
  if limit.ramp then return climb(key, limit, at, cost, promises) end
  return earliest_in(key, ledger_of(key, limit.span), at, room_of(key, limit, cost), promises)
end

-- How many limits a search asks at most. It asks them in turn until it comes back to the limit that moved the start
-- last. If it has not come back by then, the start counts as beyond the horizon.
local MOST_ASKED = 500
local asked = 0

local function search(key, at, cost, promises)
  local holder
  if key.paused > at then at, holder = key.paused, PAUSE end
  local again = true
  while again do
    again = false
    local hours = key.limits.hours
    if hours then
      if hours == holder then break end
      asked = asked + 1
      if asked > MOST_ASKED then return max(at, horizon + 1), holder or hours end
      local opens = opens_at(hours.edges, at)
      if opens > at then at, holder, again = opens, hours, true end
    end
    for i = 1, #key.limits do
      local limit = key.limits[i]
      if limit == holder then break end
      if limit.units >= 0 then
        asked = asked + 1
        if asked > MOST_ASKED then return max(at, horizon + 1), holder or limit end
        local start = under(key, limit, at, cost, promises)
        if start == NEVER then return NEVER, limit end
        if start > at then at, holder, again = start, limit, true end
      end
    end
  end
  return at, holder
end

-- The same. What a search has found is known until a ledger of the scope key changes: jobs that wait change none.
local function search_on(key, at, cost, promises)
  local index, before = promises and at or -at, asked -- with and without bookings, beside each other
  local known = key.known[index]
  if known and known.cost == cost and asked + known.asked <= MOST_ASKED then
    asked = asked + known.asked
    return known.start, known.holder
  end
  local start, holder = search(key, at, cost, promises)
  budget.left = budget.left - 15 * (asked - before)
  if asked <= MOST_ASKED then
    key.known[index] = { cost = cost, start = start, holder = holder, asked = asked - before }
  end
  return start, holder
end

-- The first start at or after an instant that a scope key allows by itself, and what moved it last: a limit, or PAUSE.
local function earliest_of(key, at, cost, promises)
  asked = 0
  return search_on(key, at, cost, promises)
end

-- The first start at or after an instant that all scope keys of a lane in a mode allow, what moved it last, and which
-- scope key did.
local function earliest(lane, costs, at, promises, mode)
  local key, holder
  local again = true
  asked = 0
  while again do
    again = false
    for i = 1, #lane do
      if lane[i] == key then break end -- all others have been asked since it moved the start
      if lane[i].mode == mode then
        local start, by = search_on(lane[i], at, costs[i], promises)
        if start > at then
          at, key, holder, again = start, lane[i], by, start ~= NEVER and asked <= MOST_ASKED
          if not again then break end
        end
      end
    end
  end
  return at, key, holder
end

-- Whether a job that has room may be granted its start now. The answer is no if only the end of a lease frees its
-- place, since the running job may renew the lease. For a start that is later than now, the answer is also no
--  * if other limits are in force then;
--  * while the time of a scope key stands still: a far step of the clock lets it go on, and the start would be too
--    soon;
--  * if the start is a window or more ahead. If the clock steps back meanwhile, the start comes before its entry, by
--    the ledger's time, and a job that starts a window before the entry is nearer than a window to the start.
local function may_start(lane, costs, at)
  for i = 1, #lane do
    local key = lane[i]
    if at > now and at >= key.ends then return false end
    if at > now and key.mode ~= OFF then
      if key.shift ~= key.offset then return false end
      for j = 1, #key do
        local ledger = key[j]
        if sub_window(ledger, at + key.offset) >= sub_window(ledger, now + key.offset) + ledger.n then return false end
      end
    end
    for j = 1, key.mode == ENFORCE and #key.limits or 0 do
      local limit = key.limits[j]
      if limit.kind.renewed and limit.units >= 0 then
        local ledger = ledger_of(key, limit.span)
        trim(key, ledger)
        if ledger.spent > room_of(key, limit, costs[i]) then return false end
      end
    end
  end
  return true
end
return spent_at, behind, uses, units_at, served, under, earliest_of, earliest, may_start
