-- Purpose: let a scope key follow its upstream.
-- ARGV[4] name of the scope key
-- ARGV[5] "refused started wait floor margin"
--   refused: 1 if the upstream refused, else 0
--   started: when the upstream was asked, us; 0: now
--   wait: for how long the upstream asks to wait, us; 0: it does not say
--   floor: the smallest served share, thousandths
--   margin: by how much windows, not quotas, are longer than the upstream's, us
-- ARGV[6] what the upstream says of its windows "window/units/remaining,..."
--   window, us, 0: the shortest; remaining: units that are left, -1: it does not say
-- Reply: now, next
--   the served share before and now, thousandths
--   until when the scope key is closed, us; 0: it is not
-- uses: request, scopes, key, placing, queue, line

-- Additive increase, multiplicative decrease: Chiu and Jain 1989. In thousandths: what a share keeps after a refusal
-- that nothing explains, and what it grows by in each shortest window.
local KEEPS, STEP = 700, 100
local FIRST, MOST = 1000000, 300000000 -- us that a scope key is closed for after the first refusal, and at most

-- Read.
local name = ARGV[4]
local refused, started, wait, least, margin = match(ARGV[5], '^([01]) (%d+) (%d+) (%d+) (%d+)$')
refused, started, wait = refused == '1', tonumber(started), tonumber(wait)
least, margin = tonumber(least), tonumber(margin)
local control = read_control()[2]
check_line()
local key = key_of(name)
local before = 1000 - key.less

-- The shortest window, without windows the shortest quota, 0 without both; and in which time the share grows once.
local function shortest()
  local lease
  for i = 1, #key.limits do
    local limit, length = key.limits[i], key.limits[i].length
    if limit.units > 0 and limit.kind.settled then return length, not limit.kind.slides and lease or length end
    if limit.units > 0 then lease = lease or length end
  end
  return 0, lease or 0
end
local window, pace = shortest()

-- What the upstream says of limits that the scope key has, and the share of them that it serves.
local said, ceiling = {}, 1000
for of, units, remaining in gmatch(key.mode ~= OFF and ARGV[6] or '', '(%d+)/(%d+)/(%-?%d+),?') do
  for i = 1, #key.limits do
    local limit = key.limits[i]
    local has = units_at(key, limit, now)
    local length = of == '0' and window or tonumber(of) + (limit.kind.slides and margin or 0)
    if limit.kind.settled and limit.length == length and has > 0 then
      said[#said + 1] = { limit = limit, remaining = tonumber(remaining) }
      if tonumber(units) < has then ceiling = min(ceiling, max(least, floor(units / has * 1000))) end
    end
  end
end

-- Counts units from now on that other clients of the upstream have used, so that no more start than are left. Returns
-- whether there are any.
local function enter_debts()
  local owed = false
  for i = 1, #said do
    local ledger = ledger_of(key, said[i].limit.span)
    local debt = served(key, said[i].limit, now) - said[i].remaining - uses(key, ledger)
    if said[i].remaining >= 0 and debt > 0 then
      spend_in(key, ledger, now, debt)
      owed = true
    end
  end
  return owed
end

local function close_for(length)
  if now + length > key.closed then key.closed, key.closed_at = now + length, now end
  key.paused = max(key.pause, key.closed)
end

-- Takes a refusal into account, unless the upstream was asked before it refused last.
local function follow_refusal(owed)
  if wait > 0 then close_for(wait) end
  if started ~= 0 and started <= key.down then return end
  local part = 1000 - key.less
  if part == before and not owed then key.less = 1000 - max(least, floor(part * KEEPS / 1000)) end
  if wait == 0 then close_for(min(MOST, FIRST * 2 ^ min(key.refusals, 9))) end
  key.down, key.changed, key.refusals = now, now, key.refusals + 1
end

-- Takes an answer into account: it forgives earlier refusals, and the served share grows.
local function follow_answer()
  if started == 0 or started > key.down then key.refusals = 0 end
  if before < ceiling and now - key.changed >= pace then
    key.less, key.changed = 1000 - min(ceiling, before + STEP), now
  end
end

-- Decide.
if ceiling < before then key.less, key.changed = 1000 - ceiling, now end
local owed = enter_debts()
if refused then follow_refusal(owed) else follow_answer() end
key.dirty = true

-- Write.
make_control(control)
save_keys()
if 1000 - key.less > before then hurry(name) end
return { format('%d', now), format('%d', save_line()), format('%d', before), format('%d', 1000 - key.less),
  format('%d', key.paused > now and key.paused or 0) }
