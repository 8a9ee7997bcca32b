-- begin: a suspect whose next crash would be its last begins; from now on, that crash is counted
--
-- ARGV  1 clock   2 id   3 token
-- Returns 1, or 0 if the claim is stale.
--! use clock claim_end last_crash
--! keys tries
local id, token = ARGV[2], ARGV[3]
if not owns(id, token) then
    return 0
end
local tried = redis.call('HGET', tries, id)
if waits_to_begin(tried) then
    redis.call('HDEL', tries, id) -- first write: needs no memory
    redis.call('HSET', tries, id, (string.gsub(tried, ':00', ':0', 1)))
end
return 1
