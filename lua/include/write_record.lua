-- Keeps a job's grant for as long as read_record would take it. Where it stands in for
-- another grant of the job it is kept on (ms), so that the other is not settled twice.
local function write_record(key, now, start, weight, nonce, ledgers, kept)
  redis.call('SET', key, string.format('%d %d %s %s', start, weight, nonce, ledgers),
    'PX', kept or string.format('%d', math.ceil((start + 60000000 - now) / 1000) + 1))
end
