-- unread: in which of these queues jobs have ended from which something follows, and nobody has done it yet
--
-- KEYS  the keys below of each queue   ARGV  1 clock
-- Returns for each queue: how many notes and calls there are.
--! keys notes end_calls
local out = {}
for i = 1, #KEYS, 2 do
    local n, calls = redis.pcall('LLEN', KEYS[i]), redis.pcall('HLEN', KEYS[i + 1])
    out[#out + 1] = (type(n) == 'number' and n or 0) + (type(calls) == 'number' and calls or 0)
end
return out
