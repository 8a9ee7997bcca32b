-- old_homes: ids whose reservations are older than that, in several places of identities
--
-- KEYS  homes and homes_at of each place   ARGV  1 clock   2 age (ms)   3 limit for each place
-- Returns for each place a list: the time (ms) before which these reservations were made, id, reservation, id …
--! use clock
--! keys homes homes_at
local out = {}
for i = 1, #KEYS, 2 do
    local before = string.format('%.0f', now - ARGV[2])
    local found = {before}
    redis.call('HLEN', KEYS[i]) -- an error if another program has written the key: maintenance sets it aside
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i + 1], '-inf', before, 'LIMIT', 0, ARGV[3])) do
        found[#found + 1] = id
        found[#found + 1] = redis.call('HGET', KEYS[i], id) or ''
    end
    out[#out + 1] = found
end
return out
