-- The places that granted jobs occupy under running limits.
-- uses: kinds, entries, grants, ledger, key, priority, queue
local runs = {} -- of grants, as they were read; false: the job occupies no places

-- Reads the places that a grant was given, its class, and until when its flow has paid. A place whose ledger was lost
-- has no ledger. Nil if the job occupies no places.
local function run_of(id, start)
  local name = of_grant('run', id, start)
  local run = runs[name]
  if run ~= nil then return run or nil end
  local found = call('GET', name)
  runs[name] = false
  if not found then return nil end
  local class, paid, text = match(found, '^([^|]*)|(%d+)|(.+)$')
  if not text then error('FOREIGN run:' .. id, 0) end
  run = { class = class, paid = tonumber(paid) }
  for key_name, span, at, units in gmatch(text, '([^,=]+)=(%l%d+):(%d+):(%d+)') do
    local key = key_of(key_name)
    run[#run + 1] = { key = key, ledger = ledger_of(key, span), at = tonumber(at), units = tonumber(units) }
  end
  runs[name] = run
  return run
end

-- Whether a place still counts. If its ledger was lost or began anew, another job may occupy the place.
local function counts(place)
  local ledger = place.ledger
  if not ledger or place.at + ledger.n <= sub_window(ledger, now + place.key.shift) then return false end
  local _, there = find(ledger.tail, place.at)
  return (there or 0) + (ledger.moves and ledger.moves[place.at] or 0) >= place.units
end

-- The places that a grant still occupies, and whether these are all that it was given; nil if it occupies none.
local function places_of(id, start)
  local run = run_of(id, start)
  if not run then return nil, false end
  local places = { class = run.class, paid = run.paid }
  for i = 1, #run do
    if counts(run[i]) then places[#places + 1] = run[i] end
  end
  return places[1] and places, #places == #run
end

-- Notes a change of units in a sub-window of a place's ledger: count_moves makes all changes of the call at once.
local function count_at(place, at, units)
  local ledger = place.ledger
  ledger.moves = ledger.moves or {}
  ledger.moves[at] = (ledger.moves[at] or 0) + units
  place.key.dirty, place.key.touched = true, true
end

-- Rebuilds the tail of a ledger with all changes.
local function move_in(key, ledger)
  trim(key, ledger)
  local ats, parts, from = {}, {}, 0
  for at in pairs(ledger.moves) do ats[#ats + 1] = at end
  table.sort(ats)
  for i = 1, #ats do
    local place, there = find(ledger.tail, ats[i])
    local units = ledger.moves[ats[i]]
    local sum = (there or 0) + units
    parts[#parts + 1] = sub(ledger.tail, from + 1, place)
    if sum > 0 then parts[#parts + 1] = format('%016d%016d', ats[i], sum) end
    ledger.spent, from = ledger.spent + units, there and place + 32 or place
  end
  parts[#parts + 1] = sub(ledger.tail, from + 1)
  ledger.tail, ledger.moves = table.concat(parts), nil
end

-- Makes the noted changes in all ledgers.
local function count_moves()
  for _, key in pairs(keys) do
    for i = 1, #key do
      if key[i].moves then move_in(key, key[i]) end
    end
  end
end

-- Charges the flow for the time in places that its job has not paid yet, or gives back the unused part of the second
-- that a start charges. A scope key with two leases is charged once.
local function pay(places)
  local lane, work, paid = {}, {}, {}
  lane.flow, lane.mark = classes.parts(places.class)
  local time = max(now - places.paid, -1000000) / 1000000
  for i = 1, #places do
    local key = places[i].key
    if not paid[key] then
      lane[#lane + 1], work[#work + 1], paid[key] = key, places[i].units * time, true
    end
  end
  charge(lane, work, 1, true)
end

local function cooldown_of(cooldowns, wanted)
  for scope, us in gmatch(cooldowns, '([^,=]+)=(%d+)') do
    if scope == wanted then return tonumber(us) end
  end
  return 0
end

-- Gives back the places of a grant. If the grant still occupies all of them, each counts on for its scope's cool-down.
-- timed: its flow pays for the time. Returns whether the grant occupied all of its places.
local function give_back(id, start, cooldowns, timed)
  local places, all = places_of(id, start)
  if not places then return false end
  if timed then pay(places) end
  for i = 1, #places do
    local place = places[i]
    local key, ledger = place.key, place.ledger
    local cooldown = min(ledger.length, cooldown_of(cooldowns, match(key.name, '^[^:]*')))
    count_at(place, place.at, -place.units)
    if all and cooldown > 0 then
      count_at(place, sub_window(ledger, now + key.shift + cooldown - ledger.length), place.units)
    end
    hurry(key.name)
  end
  local name = of_grant('run', id, start)
  runs[name] = false
  write('DEL', name)
  return all
end

-- Renews the places of a grant for a lease from now, and returns true; if some are lost, gives back the others.
local function renew(id, start, timed)
  local places, all = places_of(id, start)
  if not all then return give_back(id, start, '', timed) end
  local run = run_of(id, start)
  if timed and run.paid < now then
    pay(places)
    run.paid = now
  end
  local renewed = {}
  for i = 1, #run do
    local place = run[i]
    local ledger = place.ledger
    local at = max(place.at, sub_window(ledger, now + place.key.shift))
    count_at(place, place.at, -place.units)
    count_at(place, at, place.units)
    place.at = at
    renewed[i] = { place.key.name, ledger, at, place.units }
  end
  note_places(id, start, run.class, run.paid, renewed, now)
  return true
end
return run_of, count_moves, give_back, renew
