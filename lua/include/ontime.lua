-- Booked jobs that come on time, decided and written at once: all of their scope keys are enforced and none is paused,
-- behind a step of the clock or under other limits than windows, and all limits have room for all jobs. That needs none
-- of the includes below, which are most of what such a call costs. In any other case nothing is written.
-- uses: kinds, records, ledger, key, late

-- The units of a ledger that still count at an instant.
local function counts_at(key, ledger, at)
  trim(key, ledger)
  local oldest = ledger.passed < ledger.logged and read_log(key, ledger, ledger.passed, 1024) or ledger.tail
  local _, gone = older(oldest, format('%016d', sub_window(ledger, at) - ledger.n + 1))
  return ledger.spent - gone
end

-- Whether a scope key has room for so many units, whenever they start from the first instant to the last.
local function has_room(key, units, first, last)
  if key.mode ~= ENFORCE or key.paused > now or key.less > 0 or key.limits.hours then return false end
  if key.offset ~= 0 or key.shift ~= 0 or last > now and last >= key.ends then return false end
  for i = 1, #key do
    local ledger = key[i]
    if ledger.edges or ledger.kind.renewed then return false end
    if sub_window(ledger, last) >= sub_window(ledger, now) + ledger.n then return false end
  end
  for i = 1, #key.limits do
    local limit = key.limits[i]
    local ledger = limit.units >= 0 and ledger_of(key, limit.span)
    local most = limit.units - units
    if ledger and ledger.spent > most and counts_at(key, ledger, first) > most then return false end
  end
  return true
end

-- The start, the cost and the slot of a job, and its answer; nil in any other case.
local function start_of_booking(record, job)
  local slot, costs, arrival, text = match(record or '', '^(%d+) (%d+) (%d+) (%S+)$')
  local asked, max_wait, latest = match(job.terms, '^(%d+) 0 (%d+) (%d+) ')
  if not asked or costs ~= asked or text ~= job.lane or slot == '0' then return nil end
  slot = tonumber(slot)
  local start = max(now, slot)
  if start > min(horizon, now + max_wait, now + latest) or late_from(slot) <= now then return nil end
  return start, tonumber(costs), slot, format('1 %d 0 %d', start, max(0, start - arrival))
end

-- Starts jobs, { id, lane, terms }, by their records. places: by lane, where its scope keys stand in names. Returns the
-- answers; nil in any other case.
local function start_booked(asked, records, names, places)
  local units, first, last, starts, costs, slots, ids, marks, answers = {}, NEVER, now, {}, {}, {}, {}, {}, {}
  for i, job in ipairs(asked) do
    starts[i], costs[i], slots[i], answers[i] = start_of_booking(records[i], job)
    if not starts[i] or marks[job.id] then return nil end
    ids[i], marks[i], marks[job.id] = job.id, BOOKING .. job.id, true
    first, last = min(first, starts[i]), max(last, starts[i])
    for _, place in ipairs(places[job.lane]) do units[place] = (units[place] or 0) + costs[i] end
  end
  for i = 1, #names do
    if not has_room(key_of(names[i]), units[i], first, last) then return nil end
  end
  if call('HLEN', claims) > 0 then return nil end -- one of them may have a claim
  call('SET', prefix .. 'none', '-', 'XX') -- sets nothing, but fails here where Redis takes no writes
  call('ZREM', timers, unpack(marks))
  call('HDEL', jobs, unpack(ids))
  for i, job in ipairs(asked) do
    for _, place in ipairs(places[job.lane]) do
      local key = key_of(names[place])
      book(key, slots[i], -costs[i])
      spend(key, starts[i], costs[i])
    end
  end
  return answers
end
return start_booked
