-- Keeps a job's grant for as long as read_record would take it.
local function write_record(key, now, start, weight, nonce, ledgers)
  redis.call('SET', key, string.format('%d %d %s %s', start, weight, nonce, ledgers),
    'PX', string.format('%d', math.ceil((start + 60000000 - now) / 1000) + 1))
end
