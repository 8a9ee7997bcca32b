-- lapsed: in which of these queues a lease has ended, or the time of a job that had not started when it was enqueued
--
-- KEYS  the keys below of each queue   ARGV  1 clock
-- Returns for each queue, flat: 1 if `recover` or `expire` may find something there, also if a key cannot be read,
-- otherwise 0; the server's time
--! use clock
--! keys leases expiries
local out = {}
for at = 1, #KEYS, 2 do
    leases, expiries = KEYS[at], KEYS[at + 1]
    local found = 0
    for _, key in ipairs({leases, expiries}) do
        local over = redis.pcall('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, 1)
        found = (over.err or #over > 0) and 1 or found
    end
    out[#out + 1] = found
    out[#out + 1] = now
end
return out
