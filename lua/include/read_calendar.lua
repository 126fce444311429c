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
-- A scope key's totals are "seen expire" and for each ledger
-- " window:precision:spent:booked:open:open_units", where seen is the last instant
-- that was written and expire and open are relative to it, as short numbers are read
-- faster. Ledgers that the last call did not count on follow, see set_aside. A limit
-- whose ledger is not among those before, or in another precision, is to be adopted
-- first: the error names its scope key's place and the windows that there are.
--
-- A limit may end in letters: n counts and never holds a job back, s the same and
-- tells when it would have (shadow), x has just this precision. A limit of 0 holds
-- all back until it changes; opens and closer say until when a pause does.
-- include: totals_of
-- include: span_of
-- include: set_aside
local function read_calendar(keys, first_key, args, first_arg, time, grace, opens, closer)
  local match, tonumber = string.match, tonumber
  local now, scopes, ledgers, total = time, {}, {}, 0
  local untended, never, shadows = false, 0, false
  local k, a = first_key, first_arg
  while keys[k] do
    local count = tonumber(match(args[a] or '', '^%d%d?$') or 0)
    if count == 0 or not keys[k + count] then
      return nil, redis.error_reply('THROTTLE_ARGUMENT number of limits')
    end
    local scope = { key = keys[k], first = total + 1, last = total + count, seen = 0, expire = 0, span = 0, live = '', aside = '' }
    local text = redis.call('GET', keys[k])
    local totals
    if text then
      local seen, expire
      seen, expire, totals = match(text, '^(%d+) (%d+)(.*)$')
      if not seen then
        return nil, redis.error_reply('THROTTLE_STATE ' .. keys[k])
      end
      scope.live = totals
      if string.find(totals, '|', 1, true) then
        scope.live, scope.aside = match(totals, '^([^|]*)(.*)$')
      end
      scope.seen = tonumber(seen)
      scope.expire = scope.seen + expire
      if scope.seen > now and scope.seen - time <= 30000000 then
        now = scope.seen
      end
    end
    for i = 1, count do
      local units, window, precision, how = match(args[a + i] or '', '^(%d+) (%d+) (%d+) ?([nsx]*)$')
      local length = tonumber(window)
      units, precision = tonumber(units), tonumber(precision)
      if not units or units > 9007199254740992 or length < 1000 or length > 34560000000000
        or precision < 1 or precision > length then
        return nil, redis.error_reply('THROTTLE_ARGUMENT limit')
      end
      local ledger = {
        key = keys[k + i], window = window, units = units, precision = precision,
        spent = 0, booked = 0, open = 0, open_units = 0,
      }
      if how ~= '' then
        ledger.free, ledger.told = match(how, '[ns]') and true, match(how, 'x')
        ledger.shadow = match(how, 's')
        shadows = shadows or ledger.shadow
      end
      if not text then
        ledger.unknown, ledger.bare, untended = true, true, true
      elseif not totals_of(scope, ledger) then
        local windows = {}
        for other in string.gmatch(totals, '[ |](%d+):') do
          windows[#windows + 1] = other
        end
        return nil, redis.error_reply(string.format('THROTTLE_LEDGERS %d ', #scopes + 1) .. table.concat(windows, ' '))
      end
      if units == 0 and not ledger.free then
        never = total + i
      end
      ledger.span = span_of(length, ledger.precision)
      if ledger.span > scope.span then
        scope.span = ledger.span
      end
      ledgers[total + i] = ledger
    end
    if scope.live ~= '' then
      scope.aside = set_aside(scope, now, grace)
    end
    total = total + count
    if scope.expire < now + scope.span + grace + 30000000 then
      untended = true
    end
    scopes[#scopes + 1] = scope
    k, a = k + count + 1, a + count + 1
  end
  if never > 0 then
    opens, closer = now + 2 * 34560000000000, never -- beyond any lookahead
  else
    closer = total + closer
  end
  return {
    now = now, grace = grace, scopes = scopes, ledgers = ledgers, untended = untended,
    opens = opens, closer = closer, shadows = shadows, charged = 0,
  }
end
