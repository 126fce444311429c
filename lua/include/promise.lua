-- Keeps a job's booking as "slot weight holder ledgers arrival lane", and in '#'
-- fair key the units that its jobs are promised. Half a second after the slot it
-- is overdue: whoever should have come for it is then looked for.
local function promise(line, id, slot, weight, holder, ledgers, arrival, kept)
  line.promised = math.min(line.promised + weight, 9007199254740992)
  redis.call('HSET', line.hash,
    '=' .. id, string.format('%d %d %d %s %d %s', slot, weight, holder, ledgers, arrival, line.lane),
    '#' .. line.fair, string.format('%d', line.promised))
  redis.call('PEXPIRE', line.hash, kept)
  redis.call('ZADD', line.agenda, string.format('%d', slot + 500000), '=' .. id)
  redis.call('PEXPIRE', line.agenda, kept)
end
