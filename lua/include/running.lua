-- Places: what granted jobs hold of limits on what runs at once.
local timed = false -- flows are charged for the time that they hold places

-- What a grant holds, with its scope keys, its flow and until when that has paid, and whether all of it counts until now;
-- nil if it holds nothing.
local function places_of(id, start)
  local found = call('GET', of_grant('run', id, start))
  if not found then return nil, false end
  local flow, paid, text = match(found, '^([^|]*)|(%d+)|(.+)$')
  if not text then error('FOREIGN run:' .. id, 0) end
  local places, counts = { flow = flow, paid = tonumber(paid) }, true
  for name, window, at, units in gmatch(text, '([^,=]+)=(%-%d+):(%d+):(%d+)') do
    local key = key_of(name)
    local ledger = ledger_of(key, tonumber(window))
    places[#places + 1] = { key = key, ledger = ledger, at = tonumber(at), units = tonumber(units) }
    if not ledger or tonumber(at) + ledger.n <= floor((now + key.shift) / ledger.precision) then counts = false end
    -- Where the ledger has it no more, since it was lost or its time began anew, another may have it.
    local _, there = find(ledger and ledger.tail or '', tonumber(at))
    if (there or 0) < tonumber(units) then counts = false end
  end
  return places, counts
end

local function count_at(place, at, units)
  local ledger, changed = place.ledger, nil
  trim(place.key, ledger)
  ledger.tail, changed = add(ledger.tail, at, units)
  ledger.spent = ledger.spent + changed
  place.key.dirty, place.key.touched = true, true
end

-- Charges the flow for the time that it has held places and has not paid, or gives back what it has paid too much.
local function pay(places)
  local lane, work = { flow = places.flow }, {}
  for i = 1, #places do
    lane[i], work[i] = places[i].key, places[i].units * ((now - places.paid) / 1000000)
  end
  charge(lane, work, 1, true)
  places.paid = now
end

local function cooldown_of(cooldowns, wanted)
  for scope, us in gmatch(cooldowns, '([^,=]+)=(%d+)') do
    if scope == wanted then return tonumber(us) end
  end
  return 0
end

-- Ends what a grant holds. It counts on for a cool-down, by scopes. Returns whether all of it counted until now.
local function give_back(id, start, cooldowns)
  local places, counts = places_of(id, start)
  if not places then return false end
  if timed then pay(places) end
  for i = 1, #places do
    local place = places[i]
    local key, ledger = place.key, place.ledger
    if ledger then
      local cooldown = min(-ledger.window, cooldown_of(cooldowns, match(key.name, '^[^:]*')))
      count_at(place, place.at, -place.units)
      if cooldown > 0 then count_at(place, floor((now + key.shift + cooldown + ledger.window) / ledger.precision), place.units) end
      hurry(key.name)
    end
  end
  write('DEL', of_grant('run', id, start))
  return counts
end
