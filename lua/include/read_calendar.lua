-- Binds the ledgers of one job and reads their totals, nothing else. For each
-- scope key, keys has a string followed by one sorted set per limit, from first_key
-- on; args describes each key in turn from first_arg on: the number of limits for
-- a string, "units window precision" for a sorted set. Returns the calendar, or nil
-- and the error to reply.
--
-- The calendar's now never goes back: where Redis' clock stepped back by up to
-- 30 s, time stands still until the clock has caught up. After a larger step the
-- clock is believed; what lies in its future still counts.
--
-- A ledger's entries are kept in its sorted set, except the newest sub-window of
-- spent units: it is open, kept with the totals, and moves to the sorted set when
-- a newer one begins, so that starts in one sub-window cost no entry each. The
-- totals also count entries that have left since the last look: they err on the
-- high side. A ledger whose totals are not there (new, evicted) is unknown and gets
-- counted. Totals of limits that this call does not know, since processes with an
-- older and a newer configuration run side by side, are kept as they are.
-- include: totals_of
local function read_calendar(keys, first_key, args, first_arg, time, grace)
  local now, scopes, ledgers, total = time, {}, {}, 0
  local k, a = first_key, first_arg
  while keys[k] do
    local count = tonumber(string.match(args[a] or '', '^%d%d?$') or 0)
    if count == 0 or not keys[k + count] then
      return nil, redis.error_reply('THROTTLE_ARGUMENT number of limits')
    end
    local scope = { key = keys[k], first = total + 1, last = total + count, expire = 0, span = 0, others = '' }
    local text = redis.call('GET', keys[k])
    if text then
      local last, expire, others = string.match(text, '^(%d+) (%d+)(.*)$')
      if not last then
        return nil, redis.error_reply('THROTTLE_STATE ' .. keys[k])
      end
      local seen = tonumber(last)
      scope.expire, scope.others = tonumber(expire), others
      if seen > now and seen - time <= 30000000 then
        now = seen
      end
    end
    for i = 1, count do
      local units, window, precision = string.match(args[a + i] or '', '^(%d+) (%d+) (%d+)$')
      units, precision = tonumber(units), tonumber(precision)
      local span = tonumber(window)
      if not units or units > 9007199254740992 or span < 1000 or span > 34560000000000
        or precision < 1 or precision > span then
        return nil, redis.error_reply('THROTTLE_ARGUMENT limit')
      end
      if precision > 1 then
        span = math.ceil(span / precision) * precision + precision
      end
      if span > scope.span then
        scope.span = span
      end
      local ledger = {
        key = keys[k + i], window = window, units = units, precision = precision, span = span,
        spent = 0, booked = 0, open = 0, open_units = 0, unknown = true, bare = true,
        edits = false, dropped = false, trimmed = false, loaded = false,
      }
      totals_of(scope, ledger)
      total = total + 1
      ledgers[total] = ledger
    end
    scopes[#scopes + 1] = scope
    k, a = k + count + 1, a + count + 1
  end
  return { now = now, grace = grace, scopes = scopes, ledgers = ledgers }
end
