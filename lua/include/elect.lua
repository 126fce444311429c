-- Makes the one of a fair key's eligible lanes whose head is oldest its front, and
-- the fair key ready if it has one. Start-time fair queueing (Goyal, Vin, Cheng
-- 1996): who comes to wait starts at the virtual time ('*' among the tags), or
-- where its own last work ended. That nobody is ready is no reason to begin anew:
-- all may be set aside.
local function elect(line, kept)
  line.front = redis.call('ZRANGE', line.heads, '0', '0')[1] or ''
  if line.front == '' then
    redis.call('ZREM', line.ready, line.fair)
  elseif not redis.call('ZSCORE', line.ready, line.fair) then
    local tag = math.max(tonumber(redis.call('ZSCORE', line.tags, '*') or 0),
      tonumber(redis.call('ZSCORE', line.tags, '+' .. line.fair) or 0))
    redis.call('ZADD', line.ready, string.format('%.17g', tag), line.fair)
    redis.call('PEXPIRE', line.ready, kept)
  end
end
