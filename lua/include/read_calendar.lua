-- Binds the ledgers of one job and reads their totals, nothing else. For each
-- scope key, keys has a string followed by one sorted set per limit, from
-- first_key on; args describes each key in turn from first_arg on: the number of
-- limits for a string, "units window precision" for a sorted set. Returns the
-- calendar, or nil and the error to reply.
--
-- The calendar's now never goes back: where Redis' clock stepped back by up to
-- 30 s, time stands still until the clock has caught up. After a larger step the
-- clock is believed; what lies in its future still counts.
--
-- A ledger's entries are kept in its sorted set, except the newest sub-window of
-- spent units: it is open, kept with the totals, and moves to the sorted set when
-- a newer one begins, so that starts in one sub-window cost no entry each. The
-- totals also count entries that have left since the last look: they err on the
-- high side. A ledger whose totals are not there (new, evicted) is unknown and has
-- to be counted. The calendar is untended while a ledger is unknown or a key's
-- expiry is due to be renewed.
--
-- A scope key's totals are "seen expire" and for each window
-- " window:spent:booked:open:open_units", where seen is the last instant that was
-- written and expire and open are relative to it, as short numbers are read faster.
-- Totals of limits that this call does not know, since processes with an older and
-- a newer configuration run side by side, are kept as they are.
-- include: totals_of
local function read_calendar(keys, first_key, args, first_arg, time, grace)
  local match, tonumber = string.match, tonumber
  local now, scopes, ledgers, total = time, {}, {}, 0
  local untended = false
  local k, a = first_key, first_arg
  while keys[k] do
    local count = tonumber(match(args[a] or '', '^%d%d?$') or 0)
    if count == 0 or not keys[k + count] then
      return nil, redis.error_reply('THROTTLE_ARGUMENT number of limits')
    end
    local scope = { key = keys[k], first = total + 1, last = total + count, seen = 0, expire = 0, span = 0, others = '' }
    local text = redis.call('GET', keys[k])
    if text then
      local seen, expire, others = match(text, '^(%d+) (%d+)(.*)$')
      if not seen then
        return nil, redis.error_reply('THROTTLE_STATE ' .. keys[k])
      end
      scope.seen = tonumber(seen)
      scope.expire, scope.others = scope.seen + expire, others
      if scope.seen > now and scope.seen - time <= 30000000 then
        now = scope.seen
      end
    end
    for i = 1, count do
      local units, window, precision = match(args[a + i] or '', '^(%d+) (%d+) (%d+)$')
      local span = tonumber(window)
      units, precision = tonumber(units), tonumber(precision)
      if not units or units > 9007199254740992 or span < 1000 or span > 34560000000000
        or precision < 1 or precision > span then
        return nil, redis.error_reply('THROTTLE_ARGUMENT limit')
      end
      if precision > 1 then
        span = span - 1 - (span - 1) % precision + 2 * precision
      end
      if span > scope.span then
        scope.span = span
      end
      local ledger = {
        key = keys[k + i], window = window, units = units, precision = precision, span = span,
        spent = 0, booked = 0, open = 0, open_units = 0,
      }
      if not totals_of(scope, ledger) then
        ledger.unknown, ledger.bare, untended = true, true, true
      end
      ledgers[total + i] = ledger
    end
    total = total + count
    if scope.expire < now + scope.span + grace + 30000000 then
      untended = true
    end
    scopes[#scopes + 1] = scope
    k, a = k + count + 1, a + count + 1
  end
  return { now = now, grace = grace, scopes = scopes, ledgers = ledgers, untended = untended }
end
