-- Purpose: tell how scope keys stand. It writes nothing.
-- ARGV[4] "" | "e" (also all entries) | "c from to": count what started from so many us ago (included) to so many us ago
-- ARGV[5..] names of scope keys
-- Reply: now, then for each a text, until the steps of one call are taken: "paused part mode origin ends flows timer" (us or 0;
--   thousandths of its limits that are served; when the next of what is set for it ends; flows that stand under it; when it
--   is looked at),
--   a line for each limit in force: "units/span/precision used booked free" (free: the earliest start of one unit, 0 never),
--   with e for each window in Redis "= span precision n shift spent booked", these as entries, '-' for none,
--   with c "# units", -1 if no window reaches that far
-- include: request
-- include: entries
-- include: ledger
-- include: placing
-- include: line

-- Read.
local entries, from, to = ARGV[4] == 'e', match(ARGV[4], '^c (%d+) (%d+)$')
local found = call('MGET', prefix .. 'none', KEYS[1])
read_scopes(found[2])

-- Decide.
local function all_entries(key, ledger)
  trim(key, ledger)
  local old, spent, booked = '', ledger.tail, ledger.ahead
  if ledger.passed < ledger.logged then
    old = call('GETRANGE', log_of(key, ledger), format('%d', ledger.passed), format('%d', ledger.logged - 1))
  end
  spent = table.concat({ old, spent })
  budget.left = budget.left - (#spent + #booked) / 128
  return table.concat({
    format('= %s %d %d %d', ledger.span, ledger.precision, ledger.n, key.shift),
    spent == '' and '-' or spent, booked == '' and '-' or booked,
  }, ' ')
end

-- Of the ledgers of starts that reach that far, the one with the finest precision.
local function count(key)
  local best
  for i = 1, #key do
    if key[i].kind.settled and key[i].length >= from + 0 and (not best or key[i].precision < best.precision) then best = key[i] end
  end
  if not best then return -1 end
  local t = now + key.shift
  local first, last, sum, i = sub_window(best, t - from), t - to, 0, 1
  local at, units = spent_at(key, best, i)
  while at do
    if at >= first and start_of(best, at) < last then sum = sum + units end
    i = i + 1
    at, units = spent_at(key, best, i)
  end
  return sum
end

local function state(name)
  local key = key_of(name)
  local paused, ends = key.paused > now and key.paused or 0, key.ends < NEVER and key.ends or 0
  local lines = { format('%d %d %s %s %d %d %d', paused, 1000 - key.less, key.mode, key.origin, ends,
    call('ZCARD', prefix .. 'wait:' .. name), tonumber(call('ZSCORE', timers, name) or 0)) }
  for i = 1, #key.limits do
    local limit = key.limits[i]
    local ledger, used, booked, free = ledger_of(key, limit.span), 0, 0, now
    if ledger and limit.units >= 0 then
      used, booked = uses(key, ledger)
      free = earliest_in(key, ledger, now, room_of(key, limit, 1), true)
      if free == NEVER then free = 0 end
    end
    lines[#lines + 1] = format('%d/%s/%d %d %d %d', limit.units, limit.span, limit.precision, used, booked, free)
  end
  if from then lines[#lines + 1] = format('# %d', count(key)) end
  for i = 1, entries and #key or 0 do lines[#lines + 1] = all_entries(key, key[i]) end
  return table.concat(lines, '\n')
end

local reply = { format('%d', now) }
for i = 5, #ARGV do
  if budget.left <= 0 and i > 5 then break end
  reply[#reply + 1] = state(ARGV[i])
end
return reply
