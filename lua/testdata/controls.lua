-- Purpose: confirm what a caller believes to be set at run time; change nothing.
-- KEYS[1] control: hash, thr:{name}:3:control
-- ARGV[1] now: us, empty = Redis' TIME (a value is for tests)
-- ARGV[2] names: "+scope:key" of each scope key of the call, blanks between them; '-'
--   instead of '+' where a pause does not concern it
-- ARGV[3] belief: what the caller takes to be set at run time for the names, see read_controls
-- Reply[1] now: us, the instant of the answer
-- Reply[2] opens: us, when the last pause of the names ends; not after now if there is none
-- Reply[3] closer: the index of the name that is paused that long, 0 = none
-- Errors: THROTTLE_ARGUMENT <which>, THROTTLE_STATE <what>, THROTTLE_CONTROLS <what is set>
-- Cost: O(names)
-- Expiry: none, nothing is written
-- The integer that a canonical decimal text says, or nil for any other text and
-- for an integer outside low..high. Texts that tonumber alone would take (0x10,
-- 1e3, ' 12 ', nan, inf, 1.5, 007) are refused.
local function integer(text, low, high)
  local n = tonumber(text)
  if n and n >= low and n <= high and string.format('%d', n) == text then
    return n
  end
end
-- The instant of this call in microseconds since 1970: Redis' own clock, read
-- once, unless a test says the time. nil if the test's text is not an instant.
local function clock(text)
  if text == '' then
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
  end
  return integer(text, 0, 9007199254740992)
end
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
local now = clock(ARGV[1])
if not now then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local opens, closer, wrong = read_controls(KEYS[1], ARGV[2], ARGV[3])
if wrong then
  return wrong
end

return { now, opens, closer }
