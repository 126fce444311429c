-- Reads all totals of a scope key's string, see read_calendar, by their windows. Nil
-- where there is none.
local function totals_in(text, key)
  if text == '' then
    return nil
  end
  local seen, expire, rest = string.match(text, '^(%d+) (%d+)(.*)$')
  if not seen then
    return nil, redis.error_reply('THROTTLE_STATE ' .. key)
  end
  local known = { seen = tonumber(seen), expire = seen + expire, of = {}, order = {} }
  for mark, window, precision, spent, booked, open, units, since, missed in
    string.gmatch(rest, '([ |])(%d+):(%d+):(%d+):(%d+):(-?%d+):(%d+):?(%d*):?(%d*)') do
    local ledger = {
      window = window, precision = tonumber(precision), spent = tonumber(spent), booked = tonumber(booked),
      open = tonumber(open), open_units = tonumber(units), since = tonumber(since), missed = tonumber(missed),
    }
    if mark == ' ' then
      ledger.open = known.seen - ledger.open
    end
    if not known.of[window] then
      known.order[#known.order + 1] = window
    end
    known.of[window] = ledger
  end
  return known
end
