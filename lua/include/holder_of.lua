-- The name in the agenda of the scope key that holds a set of lanes.
local function holder_of(held)
  return (string.gsub(held, '^.*:held:', '&'))
end
