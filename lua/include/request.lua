-- What every script begins with: its time, and what the calling process has configured.
-- KEYS[1] control: what is set for whole scopes. The scripts build all other keys from its beginning
-- ARGV[1] now, us; '' to take it from Redis
-- ARGV[2] "lookahead grace kept lower counts steps"
--   lookahead: how far ahead jobs are booked, us; grace: for how long a booking counts after its slot, us
--   kept: for how long the keys of the line live, ms; lower: units of a priority for each of the next lower one
--   counts: 1 if the process bounds any line, and so counts jobs in line, else 0
--   steps: how many steps one call may take, of half a us to one us each
-- ARGV[3] scopes "name=mode:units/span/precision,...;...", their limits in the order of kinds.lua
--   units: -1 for unlimited; the steps of a ramp, as in ramp.lua
local call, format, match, gmatch, sub = redis.call, string.format, string.match, string.gmatch, string.sub
local floor, max, min = math.floor, math.max, math.min
local NEVER = 9007199254740992
local ENFORCE, SHADOW, OFF = 'e', 's', 'o' -- modes
local NOTHING = '-' -- where nothing is set
local PAUSE = 'p' -- stands for the limit that holds a job back
local SPILL = 512 -- when a tail has this many bytes, its older entries go into the log
local FINEST = 1000 -- the most sub-windows of a window that counts more than twice as many units
local write = call -- writes all keys but scope keys
local function write_nothing() write = function() end end
local prefix = sub(KEYS[1], 1, -8)

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lookahead, grace, kept, lower, counts, steps = match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) ([01]) (%d+)$')
lookahead, grace, counts = tonumber(lookahead), tonumber(grace), counts == '1'
local horizon = now + lookahead
local configured = ARGV[3]
