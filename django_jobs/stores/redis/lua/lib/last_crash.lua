-- A suspect whose next crash would be its last has two zeros in `tries` from its claim until `begin`.  A version that
-- does not know this reads one zero, and counts the crash.
local function waits_to_begin(tried)
    return string.find(tried or '', '^%d+:00%d') ~= nil
end
