-- Reads what was set at run time for the scope keys of a call. names lists them as
-- "+scope:key", with '-' instead of '+' where a pause does not concern the call.
-- The control hash has:
--   '!' scope:key: the instant until which it is paused
--   '%' scope:key: its limits, as text; with an empty key those of all keys of the scope
--   '~' scope, and '~' alone for all scopes: the mode
-- belief is what the caller took to be set when it listed its ledgers: for each name
-- 'k' and the key's own limits, or 'd' and the scope's, then '~' and the mode, each
-- where there is one; empty where nothing is set for any. Where it is wrong the
-- error says what is right, and the caller asks again.
-- Returns the instant at which the last pause ends and the index of its name, or 0.
local function read_controls(key, names, belief)
  local opens, closer, pieces, set = 0, 0, {}, false
  if redis.call('EXISTS', key) == 0 then
    if belief ~= '' then
      return 0, 0, redis.error_reply('THROTTLE_CONTROLS ')
    end
    return 0, 0
  elseif names ~= '' and string.gsub(' ' .. names, ' [+-][%w_.-]+:[%w_.@%%~-]*', '') ~= '' then
    return 0, 0, redis.error_reply('THROTTLE_ARGUMENT names')
  end
  local fields, marks = { '~' }, {}
  for mark, scope, rest in string.gmatch(names, '([+-])([^: ]+):([^ ]*)') do
    marks[#marks + 1] = mark
    fields[#fields + 1] = '!' .. scope .. ':' .. rest
    fields[#fields + 1] = '%' .. scope .. ':' .. rest
    fields[#fields + 1] = '%' .. scope .. ':'
    fields[#fields + 1] = '~' .. scope
  end
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 1, #marks do
    local paused, own, general = values[4 * i - 2], values[4 * i - 1], values[4 * i]
    local mode, ends = values[4 * i + 1] or values[1], tonumber(paused or 0)
    if not ends then
      return 0, 0, redis.error_reply('THROTTLE_STATE ' .. key)
    end
    if ends > opens and marks[i] == '+' then
      opens, closer = ends, i
    end
    pieces[i] = own and 'k' .. own or general and 'd' .. general or ''
    if mode then
      pieces[i] = pieces[i] .. '~' .. mode
    end
    set = set or pieces[i] ~= ''
  end
  local text = set and table.concat(pieces, ' ') or ''
  if text ~= belief then
    return 0, 0, redis.error_reply('THROTTLE_CONTROLS ' .. text)
  end
  return opens, closer
end
