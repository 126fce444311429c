-- Purpose: correct what a grant was charged at its start, once; or make the grant a booking again.
-- ARGV[4] ID
-- ARGV[5] lane
-- ARGV[6] costs that were charged, units
-- ARGV[7] costs that were used, units
-- ARGV[8] "start decided settle_within share rebook"
--   start, us; decided: when it was granted, us; settle_within: how long after the start it may be settled, us
--   share of its flow, 1 and up
--   rebook: 1 to make it a booking again, else 0
-- Reply: now, next
--   1 if it was done, else 0
-- uses: request, kinds, entries, scopes, grants, records, ledger, key, queue, line, running

-- Read.
local id, charged, actual = ARGV[4], ARGV[6], ARGV[7]
local start, decided, within, share, rebook = match(ARGV[8], '^(%d+) (%d+) (%d+) (%d+) ([01])$')
start, decided, within, rebook = tonumber(start), tonumber(decided), tonumber(within), rebook == '1'
local mark = of_grant('settled', id, start)
local found = read_control(mark)
local refused = found[3] and (rebook or found[3] ~= '2') or now > start + within
if rebook and not refused then refused = start <= now or call('HEXISTS', jobs, id) == 1 end
if refused then return { format('%d', now), format('%d', next_look()), 0 } end
check_line()
local lane = lane_of(ARGV[5])
run_of(id, start)
charged, actual = costs_of(lane, charged), costs_of(lane, actual)

-- Changes what is spent in one ledger, if it still counts: in the tail, or in the log, of which a few entries are read.
local function correct_log(key, ledger, at, delta)
  local log, digits = log_of(key, ledger), format('%016d', at)
  local low, high = ledger.passed / 32, ledger.logged / 32
  while low < high do
    local middle = floor((low + high) / 2)
    if call('GETRANGE', log, middle * 32, middle * 32 + 15) < digits then low = middle + 1 else high = middle end
  end
  local entry = call('GETRANGE', log, low * 32, low * 32 + 31)
  if low * 32 >= ledger.logged or sub(entry, 1, 16) ~= digits then return 0 end
  local there = tonumber(sub(entry, 17))
  if there == 0 then return 0 end -- all was given back, as if it were not there
  local sum = max(0, there + delta)
  return sum - there, function() call('SETRANGE', log, low * 32 + 16, format('%016d', sum)) end
end

-- After a step back of the clock, until the clock has caught up or the ledger is empty, units found at a start may
-- belong to another job: then nothing is given back, and units beyond the charge count from now on. The same holds if
-- the ledger has nothing at a start that would still count, and for a ledger that did not count yet at the grant.
-- Running limits stay unchanged.
local changes = {}
local function correct_in(key, ledger, delta)
  trim(key, ledger)
  delta = min(delta, NEVER - ledger.spent)
  local at = sub_window(ledger, time_of(key, start))
  local _, there = find(ledger.tail, at)
  local changed, counted = 0, decided >= ledger.since
  if counted and there then
    ledger.tail, changed = add(ledger.tail, at, delta)
  elseif counted and ledger.logged > ledger.passed then
    changed, changes[#changes + 1] = correct_log(key, ledger, at, delta)
  end
  ledger.spent = ledger.spent + changed
  return changed ~= 0 or at + ledger.n <= sub_window(ledger, now)
end

local function correct(key, delta)
  for i = 1, #key do
    local settled = not key[i].kind.settled or key.shift == 0 and correct_in(key, key[i], delta)
    if not settled and delta > 0 then spend_in(key, key[i], now, delta) end
  end
  key.dirty, key.touched = true, true
end

-- Decide.
if share ~= '1' then lane.share = tonumber(share) end
local deltas = {}
for i = 1, #lane do
  deltas[i] = actual[i] - charged[i]
  if deltas[i] ~= 0 then correct(lane[i], deltas[i]) end
  if deltas[i] < 0 then hurry(lane[i].name) end
end
if rebook then
  give_back(id, start, '')
  count_moves()
  promise(id, lane, ARGV[6], charged, start, start)
  expire(jobs, timers)
else
  charge(lane, deltas, 1, true)
end

-- Write.
call('SET', mark, '1', 'PX', format('%d', floor((start + within - now) / 1000) + 1))
for i = 1, #changes do changes[i]() end
save_keys()
return { format('%d', now), format('%d', save_line()), 1 }
