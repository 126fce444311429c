-- Purpose: correct what a grant was charged at its start, once; or make the grant a booking again, a microsecond later.
-- ARGV[4] ID
-- ARGV[5] lane
-- ARGV[6] costs that were charged, units
-- ARGV[7] costs that were used, units
-- ARGV[8] "start decided settle_within share rebook waited"
--   start, us; decided: when it was granted, us; settle_within: how long after the start it may be settled, us
--   share of its flow, 1 and up
--   rebook: 1 to make it a booking again, else 0
--   waited: 1 if the job stood in line or was booked, and so moved its flow's tags by what it was charged, else 0
-- Reply: now, next
--   1 if it was done, else 0
-- uses: request, kinds, entries, scopes, grants, records, ledger, key, queue, line, running

-- Read.
local id, charged, actual = ARGV[4], ARGV[6], ARGV[7]
local start, decided, within, share, rebook, waited = match(ARGV[8], '^(%d+) (%d+) (%d+) (%d+) ([01]) ([01])$')
start, decided, within, rebook = tonumber(start), tonumber(decided), tonumber(within), rebook == '1'
local mark = of_grant('settled', id, start)
local found = read_control(mark)
local refused = found[3] or now > start + within or rebook and (start <= now or call('HEXISTS', jobs, id) == 1)
if refused then return { format('%d', now), format('%d', next_look()), 0 } end
check_line()
local lane = lane_of(ARGV[5])
run_of(id, start)
charged, actual = costs_of(lane, charged), costs_of(lane, actual)

-- Changes the units of an entry in the log, which is written at the end. Returns by how many units they change.
local changes = {}
local function correct_log(key, ledger, at, delta)
  local place, there = find(read_log(key, ledger, ledger.passed, NEVER), at)
  if (there or 0) == 0 then return 0 end -- an entry of 0 units stands for none
  local sum = max(0, there + delta)
  changes[#changes + 1] = { log_of(key, ledger), format('%d', ledger.passed + place + 16), format('%016d', sum) }
  return sum - there
end

-- Corrects the units that a ledger has at the job's start. Returns true if it did, or if that start counts no longer.
-- Returns false if the start still counts, but the ledger has no entry there or began to count after the grant.
local function correct_in(key, ledger, delta)
  trim(key, ledger)
  delta = min(delta, NEVER - ledger.spent)
  local at = sub_window(ledger, time_of(key, start))
  local _, there = find(ledger.tail, at)
  local changed, counted = 0, decided >= ledger.since
  if counted and there then
    ledger.tail, changed = add(ledger.tail, at, delta)
  elseif counted and ledger.logged > ledger.passed then
    changed = correct_log(key, ledger, at, delta)
  end
  ledger.spent = ledger.spent + changed
  return changed ~= 0 or at + ledger.n <= sub_window(ledger, now)
end

-- Corrects the ledgers of a scope key. Where a ledger cannot be corrected, units beyond the charge count from now on,
-- and no units are given back. After a step back of the clock no ledger can, until the clock has caught up or the
-- ledgers are empty: the units at the start may belong to another job.
local function correct(key, delta)
  for i = 1, #key do
    local settled = not key[i].kind.settled or key.shift == 0 and correct_in(key, key[i], delta)
    if not settled and delta > 0 then spend_in(key, key[i], now, delta) end
  end
  key.dirty, key.touched = true, true
end

-- Decide.
if share ~= '1' then lane.share = tonumber(share) end
local turns = {} -- by how much the flow's tags move
for i = 1, #lane do
  local delta = actual[i] - charged[i]
  turns[i] = waited == '1' and delta or max(0, delta)
  if delta ~= 0 then correct(lane[i], delta) end
  if delta < 0 then hurry(lane[i].name) end
end
if rebook then
  give_back(id, start, '')
  count_moves()
  local slot = start + 1 -- so that the mark of this start concerns no other grant
  promise(id, lane, ARGV[6], charged, slot, decided)
  expire(jobs, timers)
else
  charge(lane, turns, 1, true)
end

-- Write.
call('SET', mark, '1', 'PX', format('%d', floor((start + within - now) / 1000) + 1))
for i = 1, #changes do call('SETRANGE', unpack(changes[i])) end
save_keys()
return { format('%d', now), format('%d', save_line()), 1 }
