-- What Redis keeps of a granted job.
-- The key of what is kept of a grant.
local function of_grant(kind, id, start)
  local short = #id <= 64 and not string.find(id, '[^%w_.@-]') and id or '~' .. redis.sha1hex(id)
  return prefix .. kind .. format(':%d:', start) .. short
end

-- Notes the places that a granted job occupies, until it gives them back or its lease is over:
-- run:<start>:<id>: string, "flow|paid|name=span:sub-window:units,...", the flow with its priority as in a lane's name,
--   paid: us, until when its flow's tags are charged, where flows pay for time: a start pays for one second
-- Each place is { name of the scope key, limit or ledger, sub-window, units }. Returns the shortest lease, 0 without places.
local function occupy(id, start, class, paid, places, from)
  local shortest, longest, texts = NEVER, 0, {}
  for i = 1, #places do
    local name, counted, at, units = unpack(places[i])
    texts[i] = format('%s=%s:%d:%d', name, counted.span, at, units)
    shortest, longest = min(shortest, counted.length), max(longest, counted.length)
  end
  if #places == 0 then return 0 end
  local text = class .. format('|%d|', paid) .. table.concat(texts, ',')
  write('SET', of_grant('run', id, start), text, 'PX', format('%d', floor((from + 1.01 * longest - now) / 1000) + 60000))
  return shortest
end

-- The grants that the arguments of a script name, three of them for each.
local function read_grants(arguments)
  local grants = {}
  for i = 1, #arguments, 3 do
    grants[#grants + 1] = { id = arguments[i], start = tonumber(arguments[i + 1]), cooldowns = arguments[i + 2] }
  end
  return grants
end
return of_grant, occupy, read_grants
