-- lapsed: in which of these queues a lease has ended
--
-- KEYS  the keys below of each queue   ARGV  1 clock
-- Returns for each queue 1 if `recover` may find something there, also if the key cannot be read; otherwise 0.
--! use clock
--! keys leases
local out = {}
for at = 1, #KEYS do
    leases = KEYS[at]
    local ended = redis.pcall('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 1)
    out[at] = (ended.err or #ended > 0) and 1 or 0
end
return out
