-- Writes what was entered and dropped. The growing writes come first and are
-- undone if one of them fails (out of memory, a key of another type), so that
-- either all ledgers are charged or none; only then is anything taken away.
-- Returns an error to reply, or nil.
--
-- Every key expires once nothing in it can count any more, 30 s for a clock that
-- steps back, and some slack so that the expiry is renewed about four times a
-- window and not with every start.
local function write_calendar(calendar, start)
  local now, ledgers = calendar.now, calendar.ledgers
  local added
  for i = 1, #ledgers do
    local ledger = ledgers[i]
    for j = 1, ledger.edits and #ledger.edits or 0 do
      local edit = ledger.edits[j]
      if edit.new > 0 and edit.new ~= edit.old then
        local member = string.format('%s%s:%d', edit.kind, edit.score, edit.new)
        local result = redis.pcall('ZADD', ledger.key, edit.score, member)
        added = added or {}
        if type(result) == 'table' then
          for u = 1, #added, 2 do
            redis.call('ZREM', added[u], added[u + 1])
          end
          return result
        end
        added[#added + 1] = ledger.key
        added[#added + 1] = member
        if not ledger.bare and redis.call('ZCARD', ledger.key) == 1 then
          ledger.bare = true -- it was evicted, and has no expiry now
        end
      end
    end
  end
  for i = 1, #ledgers do
    local ledger = ledgers[i]
    for j = 1, ledger.edits and #ledger.edits or 0 do
      local edit = ledger.edits[j]
      if edit.old > 0 and edit.new ~= edit.old then
        redis.call('ZREM', ledger.key, string.format('%s%s:%d', edit.kind, edit.score, edit.old))
      end
    end
    local dropped = ledger.dropped
    for j = 1, dropped and #dropped or 0, 1000 do
      redis.call('ZREM', ledger.key, unpack(dropped, j, math.min(j + 999, #dropped)))
    end
  end
  for s = 1, #calendar.scopes do
    local scope = calendar.scopes[s]
    local needed = (start > now and start or now) + scope.span + calendar.grace + 30000000
    local renew = scope.expire < needed
    if renew then
      scope.expire = needed + math.floor(scope.span / 4)
    end
    if scope.aside ~= '' and calendar.charged > 0 then
      scope.aside = string.gsub(scope.aside, '([^|]*:)(%d+)', function(head, missed)
        return head .. string.format('%d', missed + calendar.charged)
      end)
    end
    local totals = string.format('%d %d', now, scope.expire - now)
    for i = scope.first, scope.last do
      local ledger = ledgers[i]
      totals = totals .. string.format(' %s:%d:%d:%d:%d:%d', ledger.window, ledger.precision,
        ledger.spent, ledger.booked, now - ledger.open, ledger.open_units)
    end
    local lasts = renew and string.format('%d', math.ceil((scope.expire - now) / 1000))
    if renew then
      redis.call('SET', scope.key, totals .. scope.aside, 'PX', lasts)
    else
      redis.call('SET', scope.key, totals .. scope.aside, 'KEEPTTL')
    end
    for i = scope.first, scope.last do
      local ledger = ledgers[i]
      if renew and not ledger.bare or ledger.edits and (renew or ledger.bare) then
        lasts = lasts or string.format('%d', math.ceil((scope.expire - now) / 1000))
        redis.call('PEXPIRE', ledger.key, lasts)
      end
    end
  end
end
