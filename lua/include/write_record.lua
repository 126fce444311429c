-- Keeps a job's reservation for as long as read_record would take it: a booking
-- until its grace is over, a grant for 60 s.
local function write_record(key, now, grace, kind, start, weight, detail, ledgers)
  local kept = 60000000
  if kind == 'b' then
    kept = grace
  end
  redis.call('SET', key, string.format('%s %d %d %s %s', kind, start, weight, detail, ledgers),
    'PX', string.format('%d', math.ceil((start + kept - now) / 1000) + 1))
end
