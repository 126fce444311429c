-- Claims: a job that lacks room within the lookahead only for its weight is booked at its earliest start beyond it, so
-- that lighter jobs do not take all room that comes free. A scope key has one claim, or several that together take at
-- most half of a limit's units.
-- uses: kinds, records, key, placing, queue, line, overdue, turn
local LOOKS_OF_A_CLAIM = 8 -- a look at a claim counts for this many looks: it costs as much

local function longest(key)
  local length = 0
  for i = 1, #key.limits do
    if key.limits[i].units >= 0 then length = max(length, key.limits[i].length) end
  end
  return length
end

-- Whether a booking of a lane for an instant is a claim of a scope key: of the one under which the lane stands, and of
-- each other one if the instant is at most two of its windows ahead, where it keeps other jobs waiting.
local function claims_under(key, queue, at)
  return key.mode == ENFORCE and (key.name == queue or at - now <= 2 * longest(key))
end

-- The slot of the first claim that keeps a lane from claiming a start, the latest such slot of several limits; nil if
-- none does. The bookings beyond the lookahead are claims; a job may claim what they leave of half of a limit's units.
-- Under a running limit a claim keeps places empty, since it is not known when places come back: the next claim waits
-- until the slot of the last.
local function claimed(lane, queue, at, costs)
  local frees
  for i = 1, #lane do
    local key = lane[i]
    for j = 1, claims_under(key, queue, at) and #key.limits or 0 do
      local limit, ats, sum = key.limits[j], {}, 0
      local ledger = limit.units > 0 and ledger_of(key, limit.span)
      if ledger and limit.kind.renewed then
        local slot = tonumber(claim_of(key.name) or 0)
        if slot > horizon then frees = max(frees or 0, slot) end
      elseif ledger then
        sum = behind(ledger.ahead, sub_window(ledger, time_of(key, horizon)), ats, {})
      end
      if sum > 0 and 2 * (sum + costs[i]) > served(key, limit, horizon) then
        frees = max(frees or 0, start_of(ledger, ats[1]) - key.offset)
      end
    end
  end
  return frees
end

local function note_claim(lane, queue, id, at)
  for i = 1, #lane do
    if claims_under(lane[i], queue, at) then write('HSET', claims, lane[i].name, format('%d ', at) .. id) end
  end
  write('ZREM', timers, BOOKING .. id)
  write('ZADD', timers, format('%d', soon(max(at - lookahead, now + 1), lane.ends)), CLAIM .. id)
  expire(claims)
end

-- Books the first job of a lane although its slot is beyond the lookahead. Returns the next job.
local function claim(lane, job, queue, at)
  local lacks = lacks_edges(lane, at)
  if lacks then error(lacks, 0) end -- the next pull has them
  local following, more = book_first(lane, job, at)
  note_claim(lane, queue, job.id, at)
  return following, more
end

-- Looks for an earlier slot for a job that has a claim. A slot within the lookahead makes the claim an ordinary
-- booking.
local function reclaim(id)
  puller.looks = puller.looks - LOOKS_OF_A_CLAIM
  local record = call('HGET', jobs, id) or ''
  local slot, costs_text, arrival, text = parse_booking(record)
  if not slot or slot == '0' then return write('ZREM', timers, CLAIM .. id) end
  local lane, queue = lane_of(text), nil
  for i = 1, #lane do
    local _, claimant = claim_of(lane[i].name)
    if claimant == id then queue = lane[i].name end
  end
  unbook(id, record)
  local costs = costs_of(lane, costs_text)
  local at = earliest(lane, costs, now, true, ENFORCE)
  local lacks = at ~= NEVER and lacks_edges(lane, at)
  if lacks then note_trouble(lacks) end
  if at == NEVER or lacks then at = max(tonumber(slot), now) end
  promise(id, lane, costs_text, costs, at, tonumber(arrival), record)
  if at > horizon then
    note_claim(lane, queue, id, at)
  else
    add_job(puller.booked, id, format('%d', at), text)
    puller.bookings = puller.bookings - 1
  end
  for i = 1, #lane do
    if first(lane[i].name) then due(lane[i].name, now) end
  end
end
return LOOKS_OF_A_CLAIM, claimed, claim, reclaim
