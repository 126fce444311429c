-- The grant that a job's record tells: its start, weight, nonce and ledgers, and
-- whether it is settled. Nil where there is none or where it is more than 60 s old.
local function read_record(text, now)
  if not text then
    return nil
  end
  local start, weight, nonce, ledgers, settled = string.match(text, '^(%d+) (%d+) (%S+) (%S+) ?(%a*)$')
  if not start then
    return nil, redis.error_reply('THROTTLE_STATE record')
  end
  local record = {
    start = tonumber(start), weight = tonumber(weight), nonce = nonce, ledgers = ledgers, settled = settled == 'settled',
  }
  if record.start + 60000000 < now then
    return nil
  end
  return record
end
