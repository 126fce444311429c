-- What Redis keeps of a granted job.
-- A key that holds something of one grant: its places, or its mark after a settlement.
local function of_grant(kind, id, start)
  local short = #id <= 64 and not string.find(id, '[^%w_.@-]') and id or '~' .. redis.sha1hex(id)
  return prefix .. kind .. format(':%d:', start) .. short
end

-- Notes the places that a granted job occupies, until the job gives them back or its lease ends, as
-- "class|paid|name=span:sub-window:units,..."; paid: until when its flow has paid, us. Each place is { name of the
-- scope key, limit or ledger, sub-window, units }; from: when its lease begins. Returns the shortest lease, 0 without
-- places.
local function note_places(id, start, class, paid, places, from)
  local shortest, longest, texts = NEVER, 0, {}
  for i = 1, #places do
    local name, counted, at, units = unpack(places[i])
    texts[i] = format('%s=%s:%d:%d', name, counted.span, at, units)
    shortest, longest = min(shortest, counted.length), max(longest, counted.length)
  end
  if #places == 0 then return 0 end
  local text = class .. format('|%d|', paid) .. table.concat(texts, ',')
  local lives = format('%d', floor((from + 1.01 * longest - now) / 1000) + 60000)
  write('SET', of_grant('run', id, start), text, 'PX', lives)
  return shortest
end

-- The grants that the arguments name, three arguments for each.
local function read_grants(arguments)
  local grants = {}
  for i = 1, #arguments, 3 do
    grants[#grants + 1] = { id = arguments[i], start = tonumber(arguments[i + 1]), cooldowns = arguments[i + 2] }
  end
  return grants
end
return of_grant, note_places, read_grants
