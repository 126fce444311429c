-- Purpose: end what granted jobs hold of limits on what runs at once, or have it count from now on for a lease.
-- ARGV[4] "done timed" or "renew timed": 1 if flows are charged for the time that they hold places, else 0
-- ARGV[5..] of each grant: id, start, its cool-downs, "scope=us,..."
-- Reply: now, next, then 1 for each grant that held its places until now, else 0: then what it still held is given back
-- include: request
-- include: entries
-- include: ledger
-- include: placing
-- include: line
-- include: running

-- Read.
local verb, timed = match(ARGV[4], '^(%a+) ([01])$')
timed = timed == '1'
local found = call('MGET', prefix .. 'none', KEYS[1]) -- refused, with nothing written, while the slot is moved
read_scopes(found[2])
for i = 5, #ARGV, 3 do run_of(ARGV[i], tonumber(ARGV[i + 1])) end
check_line()

-- Decide, and write the line and what is held on the way.
local held = {}
for i = 5, #ARGV, 3 do
  local id, start, all = ARGV[i], tonumber(ARGV[i + 1]), nil
  if verb == 'renew' then all = renew(id, start, timed) else all = give_back(id, start, ARGV[i + 2], timed) end
  held[#held + 1] = all and 1 or 0
end
count_moves()

-- Write.
save_keys()
return { format('%d', now), format('%d', save_line()), unpack(held) }
