-- Lets lanes in that a scope key holds, since one was served or has left: two, so that soon
-- there are as many as there is room for. Where there is none for a job of weight 1, it
-- says when to look again. Returns the first that is let in, or nil. class is the scope
-- key's letter.
-- include: place
-- include: look_again
-- include: first_held
-- include: holder_of
local function let_others_in(line, calendar, held, classes, class, lookahead)
  local now = calendar.now
  local start, full = place(calendar, 1, now, false)
  if start > now + lookahead and string.sub(classes, full, full) == class then
    local again = math.min(look_again(calendar, start - lookahead, 1, start, lookahead), now + 300000000)
    redis.call('ZADD', line.agenda, string.format('%d', again), holder_of(held))
    return nil
  end
  local lanes = first_held(held, line.agenda, line.tags, 2)
  for _, lane in ipairs(lanes) do
    redis.call('ZADD', line.agenda, string.format('%d', now), '/' .. lane)
  end
  return lanes[1]
end
