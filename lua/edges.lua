-- Purpose: keep when the periods of a calendar begin. An edge that Redis has already stays as it is.
-- ARGV[4] calendar, as in the span of a limit
-- ARGV[5] number of the first period
-- ARGV[6] edges of this period and of those after it, us, 16 digits each
-- Reply: now
-- uses: request, scopes

-- Read.
local calendar, first, text = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local control = call('GET', KEYS[1])
local kept_first, kept_text = match(call('HGET', prefix .. 'edges', calendar) or '', '^(%d+) (%d+)$')

-- Decide.
if kept_first then
  local before = (kept_first - first) * 16 -- bytes of edges before the first that is kept
  if before >= 0 and before <= #text then
    text = sub(text, 1, before) .. kept_text .. sub(text, before + #kept_text + 1)
  elseif before < 0 and before + #kept_text > 0 then
    text = sub(kept_text, 1 - before) .. sub(text, before + #kept_text + 1)
  end
end

-- Write.
make_control(control)
call('HSET', prefix .. 'edges', calendar, format('%d ', first) .. text)
call('PEXPIRE', prefix .. 'edges', kept)
return { format('%d', now) }
