-- Purpose: read the state of scope keys. It writes nothing.
-- ARGV[4] what to add: '' nothing, "e" all entries, or "c from to": the units that started in a time
--   from, to: how long ago the time begins and ends, us; a start at its end is not in it
-- ARGV[5..] names of scope keys
-- Reply: now
--   of each scope key a text, until the steps of the call are used up, in lines:
--   "closed share mode origin ends flows timer jobs units"
--     closed: until when it is paused, us, 0: it is not; share: what is served, thousandths
--     ends: when the next of its settings ends, us; flows that stand under it; timer: when a pull looks at them, us
--     jobs, units: the length of its line, of jobs that are counted
--   of each limit in force: "units/span/precision used booked free anew in_force"
--     free: the earliest start of one unit, us, 0: never; anew: when the period of a quota ends, or hours open or
--     close, us, 0 for others and if that is not known; in_force: its units now, of a ramp those of its step
--   with "c": "# units", -1 if no window reaches that far
--   with "e", of each ledger in Redis: "= span precision n shift spent booked", the last two as entries, '-' for none
-- uses: request, edges, kinds, entries, scopes, records, waiting, ledger, key, placing

-- Read.
local entries, from, to = ARGV[4] == 'e', match(ARGV[4], '^c (%d+) (%d+)$')
read_control()
local of_lines = read_lengths({ ALL, unpack(ARGV, 5) })

-- Decide.
local function all_entries(key, ledger)
  trim(key, ledger)
  local spent, booked = table.concat({ read_log(key, ledger, ledger.passed, NEVER), ledger.tail }), ledger.ahead
  budget.left = budget.left - (#spent + #booked) / 128
  return table.concat({
    format('= %s %d %d %d', ledger.span, ledger.precision, ledger.n, key.shift),
    spent == '' and NOTHING or spent, booked == '' and NOTHING or booked,
  }, ' ')
end

-- Counts starts in the window of the finest precision that reaches far enough; -1 if none does.
local function count(key)
  local best
  for i = 1, #key do
    local reaches = key[i].kind.slides and key[i].length >= from + 0
    if reaches and (not best or key[i].precision < best.precision) then best = key[i] end
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

local function state(name, length)
  local key, flows = key_of(name), call('ZCARD', wait_of(name))
  local paused, ends = key.paused > now and key.paused or 0, key.ends < NEVER and key.ends or 0
  local lines = { format('%d %d %s %s %d %d %d %d %d', paused, 1000 - key.less, key.mode, key.origin, ends,
    flows, tonumber(flows > 0 and call('ZSCORE', timers, name) or 0), length.jobs, length.units) }
  local hours = key.limits.hours
  if hours then
    local opens = opens_at(hours.edges, now)
    local turns = opens > now and opens or turns_at(hours.edges, now, 1) or 0
    lines[2] = format('%d/%s/%d 0 0 %d %d -1', hours.units, hours.span, hours.precision, opens, turns)
  end
  for i = 1, #key.limits do
    local limit = key.limits[i]
    local ledger, used, booked, free, anew = ledger_of(key, limit.span), 0, 0, now, 0
    if ledger and limit.units >= 0 then
      used, booked = uses(key, ledger)
      free = under(key, limit, now, 1, true)
      if free == NEVER then free = 0 end
    end
    if limit.edges then anew = ledger and leaves(ledger, now + key.shift) - key.offset or leaves(limit, now) end
    lines[#lines + 1] = format('%s/%s/%d %d %d %d %d %d', limit.units_text, limit.span, limit.precision,
      used, booked, free, anew, units_at(key, limit, now))
  end
  if from then lines[#lines + 1] = format('# %d', count(key)) end
  for i = 1, entries and #key or 0 do lines[#lines + 1] = all_entries(key, key[i]) end
  return table.concat(lines, '\n')
end

local reply = { format('%d', now) }
for i = 5, #ARGV do
  if budget.left <= 0 and i > 5 then break end
  reply[#reply + 1] = state(ARGV[i], of_lines[i - 3])
end
return reply
