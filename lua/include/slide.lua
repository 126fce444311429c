-- The earliest sub-window, from the one of from on, such that every window that
-- contains it holds at most room units: one pass over the loaded entries.
--
-- The window ending at stop holds the entries first..last. While it holds too
-- much, no start before its oldest entry leaves can be right, so the candidate
-- moves there. Once no entry between the candidate and a span later ends a
-- window that holds too much, the candidate stands.
local function slide(ledger, room, from, spent_only)
  local at, amount, promised, count, span = ledger.at, ledger.amount, ledger.promised, ledger.count, ledger.span
  local candidate = from - from % ledger.precision
  local stop, sum, first, last = candidate, 0, 1, 0
  while true do
    while last < count and at[last + 1] <= stop do
      last = last + 1
      if not (spent_only and promised[last]) then
        sum = sum + amount[last]
      end
    end
    while first <= last and at[first] <= stop - span do
      if not (spent_only and promised[first]) then
        sum = sum - amount[first]
      end
      first = first + 1
    end
    if sum > room then
      candidate = at[first] + span
      stop = candidate
    elseif last == count or at[last + 1] >= candidate + span then
      return math.max(candidate, from)
    else
      stop = at[last + 1]
    end
  end
end
