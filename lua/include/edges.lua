-- Edges: when the periods of a calendar begin, or hours open and close, us. Only Go can compute them; the hash "edges"
-- has them by calendar, as "first edges": the number of the first period, then the edge at which each period begins,
-- in 16 digits.
local edges_by_calendar = {}

-- The i-th edge; 0 before the first edge, NEVER after the last.
local function edge_at(edges, i)
  if i < 1 then return 0 end
  if i > edges.count then return NEVER end
  return tonumber(sub(edges.text, edges.from + 16 * i, edges.from + 16 * i + 15)) or error('FOREIGN edges', 0)
end

-- The error of a script if Redis lacks the edges up to an instant. The caller computes these edges and calls again.
local function missing_edges(calendar, last) return format('EDGES %s %d %d', calendar, now, last) end

-- The edges of a calendar. If the edges do not reach from now beyond the lookahead, the script ends here, with nothing
-- written. No job is booked in the last known period, because the end of this period is unknown.
local function edges_of(calendar)
  local edges = edges_by_calendar[calendar]
  if edges then return edges end
  local text = call('HGET', prefix .. 'edges', calendar) or '1 '
  local first, from = match(text, '^(%d+) ()')
  if not first or (#text - from + 1) % 16 ~= 0 then error('FOREIGN edges', 0) end
  edges = {
    calendar = calendar, text = text, from = from - 16, first = tonumber(first), count = (#text - from + 1) / 16,
    begins = 0, ends = 0, -- of the period that period_of found last
  }
  if edges.count < 3 or edge_at(edges, 1) > now or edge_at(edges, edges.count - 1) <= horizon then
    error(missing_edges(calendar, horizon), 0)
  end
  edges_by_calendar[calendar] = edges
  return edges
end

-- The period of an instant: the last period that has begun by then.
local function period_of(edges, at)
  if edges.begins > at or at >= edges.ends then
    local low, high = 0, edges.count -- edges up to low have passed, those after high have not
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if edge_at(edges, middle) <= at then low = middle else high = middle - 1 end
    end
    edges.period, edges.begins, edges.ends = edges.first + low - 1, edge_at(edges, low), edge_at(edges, low + 1)
  end
  return edges.period
end

local function edge_of(edges, period) return edge_at(edges, period - edges.first + 1) end

-- Whether an instant lies in a period with a known end.
local function knows(edges, at) return at < edge_at(edges, edges.count) end

-- The first instant, not before the given one, at which hours are open (parity 0) or closed (1). Periods with even
-- numbers are open; an empty period is skipped. Nil if the known edges do not reach so far: the last two of them begin
-- and end an open period.
local function turns_at(edges, at, parity)
  local period = period_of(edges, at)
  if period % 2 == parity then return at end
  for i = period - edges.first + 2, edges.count - 1, 2 do
    if edge_at(edges, i) < edge_at(edges, i + 1) then return edge_at(edges, i) end
  end
end

-- The first instant, not before the given one, at which hours are open. Beyond the known edges, hours count as open: a
-- job that is placed there is placed anew when that time comes, by the edges that are known then.
local function opens_at(edges, at)
  return turns_at(edges, at, 0) or max(at, edge_at(edges, edges.count))
end
return missing_edges, edges_of, period_of, edge_of, knows, turns_at, opens_at
