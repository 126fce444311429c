-- Sets a lane aside whose head waits for room under a scope key that several fair keys
-- have: the scope key holds it, with all others that wait there, in order of their fair
-- keys' tags and then of their heads' arrivals, and lets them in one after the other (see
-- first_held). Its name in the agenda, '&' scope:key, says when to look at the first of
-- them; where it is not known, now. The lane's own time there is for what was lost, short
-- of the 300 s after which a sweep takes a time for one from before the clock stepped back.
-- '~' lane in the line's hash tells the arrival.
-- include: held_as
-- include: let_go
-- include: holder_of
local function hold(line, sets, i, tag, arrival, again, now, kept)
  local held = sets[i]
  let_go(line, sets)
  line.since = string.format('%017d', tonumber(arrival))
  redis.call('HSET', line.hash, '~' .. line.lane, line.since)
  redis.call('ZADD', held, string.format('%.17g', tag), held_as(line))
  redis.call('PEXPIRE', held, kept)
  redis.call('ZADD', line.agenda, string.format('%d', now + 240000000), '/' .. line.lane)
  local name = holder_of(held)
  if again then
    redis.call('ZADD', line.agenda, string.format('%d', again), name)
  else
    redis.call('ZADD', line.agenda, 'NX', string.format('%d', now), name)
  end
  redis.call('PEXPIRE', line.agenda, kept)
  redis.call('ZREM', line.heads, line.lane)
end
