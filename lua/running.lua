-- Purpose: give back the places of granted jobs that have ended, or renew the places of running jobs for a lease from
--   now.
-- ARGV[4] "verb timed"
--   verb: done or renew
--   timed: 1 if flows pay for the time that their jobs occupy places, else 0
-- ARGV[5..] of each grant:
--   id
--   start, us
--   cool-downs "scope=length,...", us
-- Reply: now, next
--   of each grant: 1 if it occupied its places until now; else 0, and the places that it still occupied are given back
-- uses: request, scopes, grants, key, queue, line, running

-- Read.
local verb, timed = match(ARGV[4], '^(%a+) ([01])$')
timed = timed == '1'
read_control()
local grants = read_grants({ unpack(ARGV, 5) })
for i = 1, #grants do run_of(grants[i].id, grants[i].start) end
check_line()

-- Decide, and write the line and the places on the way.
local occupied = {}
for i = 1, #grants do
  local grant, all = grants[i], nil
  if verb == 'renew' then
    all = renew(grant.id, grant.start, timed)
  else
    all = give_back(grant.id, grant.start, grant.cooldowns, timed)
  end
  occupied[i] = all and 1 or 0
end
count_moves()

-- Write.
save_keys()
return { format('%d', now), format('%d', save_line()), unpack(occupied) }
