-- Changes the units of a ledger's entry of one kind ('s', 'b') at one sub-window,
-- to be written by write_calendar, and returns by how much. What the entry has now
-- is read, unless the caller knows it.
local function edit(ledger, kind, at, delta, known)
  if delta == 0 then
    return 0
  end
  ledger.edits = ledger.edits or {}
  local found
  for i = 1, #ledger.edits do
    if ledger.edits[i].kind == kind and ledger.edits[i].at == at then
      found = ledger.edits[i]
    end
  end
  if not found then
    local score, units = string.format('%d', at), known or 0
    if not known then
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', ledger.key, score, score)) do
        local other, text = string.match(member, '^([sb])%d+:(%d+)$')
        if other == kind then
          units = tonumber(text)
        end
      end
    end
    found = { kind = kind, at = at, score = score, old = units, new = units }
    ledger.edits[#ledger.edits + 1] = found
  end
  local before = found.new
  found.new = math.max(0, before + delta)
  return found.new - before
end
