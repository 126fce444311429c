-- The reservation that a job's record tells: its kind ('g' granted, 'b' booked),
-- start, weight and ledgers, and the nonce of a grant or the holder of a booking.
-- Nil where there is none or where it no longer holds: a booking whose grace is
-- over, a grant of more than 60 s ago, a reservation in other ledgers than those
-- of this call.
local function read_record(text, now, grace, ledgers)
  if not text then
    return nil
  end
  local kind, start, weight, detail, known = string.match(text, '^([gb]) (%d+) (%d+) (%S+) (%S+)$')
  if not kind then
    return nil, redis.error_reply('THROTTLE_STATE record')
  end
  local record = { kind = kind, start = tonumber(start), weight = tonumber(weight), detail = detail }
  local kept = 60000000
  if kind == 'b' then
    kept = grace
  end
  if known ~= ledgers or record.start + kept < now then
    return nil
  end
  return record
end
