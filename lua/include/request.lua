-- What every script is told: when it is, how far ahead jobs are booked, and what the asking process has configured.
-- KEYS[1] control: string, what is set for whole scopes; all other keys begin as it does and are built here
-- ARGV[1] now: us, '' = TIME; ARGV[2] lookahead (us), grace (us), kept (ms): for how long the line's keys live; lower: units
--   of a priority for each of the next lower one, while jobs of both wait; steps: how many one call may take, of about a quarter us
-- ARGV[3] scopes: "name=mode:units/span/precision,...;...", spans in the order of kinds.lua
local call, format, match, gmatch, sub = redis.call, string.format, string.match, string.gmatch, string.sub
local floor, max, min = math.floor, math.max, math.min
local NEVER = 9007199254740992
local ENFORCE, SHADOW, OFF = 'e', 's', 'o' -- modes
local NOTHING = '-' -- where nothing is set
local PAUSE = 'p' -- stands for the limit that holds a job back
local SPILL = 512 -- bytes of entries that a scope key's string has at most before a start, the others are in its log
local FINEST = 1000 -- sub-windows of a window that counts more units than twice as many
local write = call -- for what is no scope key
local function write_nothing() write = function() end end
local prefix = sub(KEYS[1], 1, -8)

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local lookahead, grace, kept, lower, steps = match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
lookahead, grace = tonumber(lookahead), tonumber(grace)
local horizon = now + lookahead
local configured = ARGV[3]
