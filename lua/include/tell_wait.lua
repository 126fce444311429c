-- Adds to a reply what a job's wait can be estimated by: the units before it in its
-- lane, the same with those in its fair key's other lanes, how many fair keys are
-- ready, and what each limit's ledger has spent and booked.
local function tell_wait(reply, line, calendar, ahead)
  reply[11] = ahead
  reply[12] = line.all_units - line.units + ahead
  reply[13] = redis.call('ZCARD', line.ready)
  for i = 1, #calendar.ledgers do
    reply[12 + 2 * i] = calendar.ledgers[i].spent
    reply[13 + 2 * i] = calendar.ledgers[i].booked
  end
end
