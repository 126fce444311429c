-- Places: what granted jobs hold of limits on what runs at once.

-- What a grant holds until now, with its scope keys, the flow and priority and until when they have paid, and whether that is all that it
-- was given; nil if it holds nothing more.
local function places_of(id, start)
  local found = call('GET', of_grant('run', id, start))
  if not found then return nil, false end
  local class, paid, text = match(found, '^([^|]*)|(%d+)|(.+)$')
  if not text then error('FOREIGN run:' .. id, 0) end
  local places, all = { class = class, paid = tonumber(paid) }, true
  for name, window, at, units in gmatch(text, '([^,=]+)=(%-%d+):(%d+):(%d+)') do
    local key, place = key_of(name), { at = tonumber(at), units = tonumber(units) }
    place.key, place.ledger = key, ledger_of(key, tonumber(window))
    -- Where the ledger has it no more, since it was lost or its time began anew, another may have it.
    local _, there = find(place.ledger and place.ledger.tail or '', place.at)
    if (there or 0) >= place.units and place.at + place.ledger.n > floor((now + key.shift) / place.ledger.precision) then
      places[#places + 1] = place
    else
      all = false
    end
  end
  return places[1] and places, all
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
  local lane, work = {}, {}
  lane.flow, lane.mark = classes.parts(places.class)
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

-- Ends what a grant holds. If that is all that it was given, it counts on for a cool-down, by scopes. Returns whether it is.
-- timed: its flow is charged for the time that it held places.
local function give_back(id, start, cooldowns, timed)
  local places, all = places_of(id, start)
  if not places then return false end
  if timed then pay(places) end
  for i = 1, #places do
    local place = places[i]
    local key, ledger = place.key, place.ledger
    local cooldown = min(-ledger.window, cooldown_of(cooldowns, match(key.name, '^[^:]*')))
    count_at(place, place.at, -place.units)
    if all and cooldown > 0 then count_at(place, floor((now + key.shift + cooldown + ledger.window) / ledger.precision), place.units) end
    hurry(key.name)
  end
  write('DEL', of_grant('run', id, start))
  return all
end
return places_of, count_at, pay, give_back
