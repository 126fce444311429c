-- Takes a lane out of those that its scope keys hold, if it is or was one.
-- include: held_as
local function let_go(line, sets)
  if line.since then
    for i = 1, #sets do
      redis.call('ZREM', sets[i], held_as(line))
    end
    redis.call('HDEL', line.hash, '~' .. line.lane)
  end
end
