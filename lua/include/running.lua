-- Places: what granted jobs hold of limits on what runs at once.

-- What a grant holds, with its scope keys, and whether all of it counts until now; nil if it holds nothing.
local function places_of(id, start)
  local text = call('GET', of_grant('run', id, start))
  if not text then return nil, false end
  local places, counts = {}, true
  for name, window, at, units in gmatch(text, '([^,=]+)=(%-%d+):(%d+):(%d+)') do
    local key = key_of(name)
    local ledger = ledger_of(key, tonumber(window))
    places[#places + 1] = { key = key, ledger = ledger, at = tonumber(at), units = tonumber(units) }
    if not ledger or tonumber(at) + ledger.n <= floor((now + key.shift) / ledger.precision) then counts = false end
    -- Where the ledger has it no more, since it was lost or its time began anew, another may have it.
    local _, there = find(ledger and ledger.tail or '', tonumber(at))
    if (there or 0) < tonumber(units) then counts = false end
  end
  if #places == 0 then error('FOREIGN run:' .. id, 0) end
  return places, counts
end

local function count_at(place, at, units)
  local ledger, changed = place.ledger, nil
  trim(place.key, ledger)
  ledger.tail, changed = add(ledger.tail, at, units)
  ledger.spent = ledger.spent + changed
  place.key.dirty, place.key.touched = true, true
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
  for i = 1, places and #places or 0 do
    local place = places[i]
    local key, ledger = place.key, place.ledger
    if ledger then
      local cooldown = min(-ledger.window, cooldown_of(cooldowns, match(key.name, '^[^:]*')))
      count_at(place, place.at, -place.units)
      if cooldown > 0 then count_at(place, floor((now + key.shift + cooldown + ledger.window) / ledger.precision), place.units) end
      hurry(key.name)
    end
  end
  if places then write('DEL', of_grant('run', id, start)) end
  return counts
end
