-- unread: which of these queues have notes that nobody has read yet (several queues at once)
--
-- ARGV  1 clock
-- Returns the numbers of notes, one for each queue.
--! keys notes
local out = {}
for i = 1, #KEYS do
    local n = redis.pcall('LLEN', KEYS[i])
    out[i] = type(n) == 'number' and n or 0
end
return out
