-- The usual case, decided and written at once: no job waits, no scope key is paused, outside of its hours or has limits
-- of its own, none has bookings, and all limits have room for all that they count. It needs none of the includes below,
-- whose definition is most of a call's cost. In any other case it writes nothing. Entries that have left a window still
-- count here; another case subtracts them, when the limit has no room for all, or when entries go into the log.
-- uses: edges, kinds, ramp, scopes, grants

local usual = {}
local now_text = format('%d', now)
local seen_text = ' ' .. now_text .. ' 0 0 -\n'

-- A scope key with its ledgers, in the order of its limits; nil in any other case.
function usual.key(name, text)
  local scope = scope_of(name)
  if scope.mode ~= ENFORCE or scope.after then return nil end
  local hours = scope.limits.hours
  if hours and opens_at(hours.edges, now) > now then return nil end
  if not text and call('EXISTS', prefix .. 'key:' .. name) == 1 then return nil end -- of another type
  local expire, seen, at = '0', now, 1
  if text then
    expire, seen, at = match(text, '^(%d+) (%d+) 0 0 %-\n()')
    if not at or seen + 0 > now then return nil end
  end
  local key = { name = name, limits = scope.limits, expire_text = expire, running = false }
  for i = 1, #key.limits do
    local limit = key.limits[i]
    if limit.units < 0 then return nil end
    if limit.kind.renewed then key.running = limit end
    -- A ledger that is too fine for its units gets coarser, which is another case.
    local most = limit.ramp and ramps.units(limit.ramp, sub_window(limit, now)) or limit.units
    if limit.kind.logged and limit.precision * FINEST < limit.length then most = min(most, 2 * FINEST) end
    local w = { left = most, since = now_text, spent = 0, added = 0, last = -1, tail = '', log = '0 0' }
    key[i] = w
    if text then
      local from = at + #limit.head
      local since, spent, length, log, entries = match(text, '^(%d+) (%d+) 0 (%d+) 0 (%d+ %d+)\n()', from)
      if not entries or sub(text, at, from - 1) ~= limit.head then return nil end
      at = entries + length
      local last, current = tonumber(sub(text, at - 32, at - 17)), sub_window(limit, now)
      if not last or last > current or length + 0 > SPILL and limit.kind.logged then return nil end
      if last + limit.n > current then
        w.since, w.spent, w.last, w.tail, w.log = since, spent + 0, last, sub(text, entries, at - 1), log
        w.left = most - w.spent
      elseif log ~= '0 0' then -- all entries have left, but the log remains
        return nil
      end
    end
  end
  if text and at <= #text then return nil end -- it has a ledger without a limit
  return key
end

function usual.save(key)
  local text, needed = '', now
  for i = 1, #key do
    local w, limit = key[i], key.limits[i]
    local current, tail = sub_window(limit, now), w.tail
    if w.last == current then
      tail = sub(tail, 1, -17) .. format('%016d', tonumber(sub(tail, -16)) + w.added)
    else
      tail = tail .. format('%016d%016d', current, w.added)
    end
    text = text .. limit.head .. w.since .. format(' %d 0 %d 0 ', w.spent + w.added, #tail) .. w.log .. '\n' .. tail
    needed = max(needed, start_of(limit, current + limit.n))
  end
  needed = needed + lookahead + grace + 60000000
  if key.expire_text + 0 >= needed then
    return call('SET', prefix .. 'key:' .. key.name, key.expire_text .. seen_text .. text, 'KEEPTTL')
  end
  local expire = needed + floor((needed - now) / 4)
  local left = format('%d', (expire - now) / 1000)
  call('SET', prefix .. 'key:' .. key.name, format('%d', expire) .. seen_text .. text, 'PX', left)
  for i = 1, #key do
    if key[i].log ~= '0 0' then call('PEXPIRE', prefix .. 'ledger:' .. key.name .. ':' .. key.limits[i].span, left) end
  end
end

-- The advance of a granted job: units for jobs of its lane that come soon, charged where the job itself is. Returns the
-- text " +units ends", or nil if there is none. ends: when the first of those sub-windows ends, or hours close, us. A
-- job gets what it asks for, up to a tenth of what a limit has left, so that one process does not take what others
-- need. An advance lasts at least SHORTEST. Where jobs run under a limit there is none: each has a place of its own.
local SHORTEST = 5000
function usual.advance(keys, lane, asked)
  local units, ends = asked, NEVER
  for i = 1, #lane do
    local key = keys[lane[i]]
    local hours = key.limits.hours
    if key.running then return nil end
    if hours then ends = min(ends, turns_at(hours.edges, now, 1) or now) end
    for j = 1, #key do
      local limit = key.limits[j]
      units, ends = min(units, floor(key[j].left / 10)), min(ends, start_of(limit, sub_window(limit, now) + 1))
    end
  end
  if units < 1 or ends - now < SHORTEST then return nil end
  for i = 1, #lane do
    local key = keys[lane[i]]
    for j = 1, #key do key[j].left, key[j].added = key[j].left - units, key[j].added + units end
  end
  return format(' +%d %d', units, ends)
end

-- Notes the places that a granted job occupies, and returns its answer.
function usual.occupy(keys, lane, job)
  local places, cost = {}, tonumber(match(job.terms, '^%d+'))
  for i = 1, cost > 0 and #lane or 0 do
    local key = keys[lane[i]]
    local limit = key.running
    if limit then places[#places + 1] = { key.name, limit, sub_window(limit, now), cost } end
  end
  return format('1 %d %d 0', now, note_places(job.id, now, match(job.lane, '^[^|]*'), now + 1000000, places, now))
end
return usual
