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
-- include: clock
-- include: read_controls
local now = clock(ARGV[1])
if not now then
  return redis.error_reply('THROTTLE_ARGUMENT number')
end
local opens, closer, wrong = read_controls(KEYS[1], ARGV[2], ARGV[3])
if wrong then
  return wrong
end

return { now, opens, closer }
