-- Purpose: set limits or a mode for all callers from their next decision on, or take
--   them back.
-- KEYS[1] control: hash, thr:{name}:3:control
-- ARGV[1] field: '%' and "scope:key", with an empty key for all keys of the scope; or '~'
--   and the scope, '~' alone for all scopes
-- ARGV[2] text: the limits, or the mode (e, s, o); empty takes back what was set
-- Reply[1] changed: 1 if it was not so before, else 0
-- Errors: THROTTLE_ARGUMENT <which>
-- Cost: O(1)
-- Expiry: none: what is set stays until it is taken back
local control = KEYS[1]
local field, text = ARGV[1], ARGV[2]
local limits = string.match(field, '^%%[%w_.-]+:[%w_.@%%~-]*$') and string.match(text, '^[^%s%c~]*$')
local mode = string.match(field, '^~[%w_.-]*$') and string.match(text, '^[eso]?$')
if not (limits or mode) then
  return redis.error_reply('THROTTLE_ARGUMENT field or text')
end

local before = redis.call('HGET', control, field) or ''
if text == '' then
  redis.call('HDEL', control, field)
else
  redis.call('HSET', control, field, text)
  redis.call('PERSIST', control)
end
return { before ~= text and 1 or 0 }
