-- checkin: stores the last check-in of a running job
--
-- ARGV  1 clock   2 id   3 token   4 check-in (JSON)
-- Returns 1, or 0 if the claim is stale.
--! use clock claim_end
local id, token, said = ARGV[2], ARGV[3], ARGV[4]
if not owns(id, token) then
    return 0
end
redis.call('HDEL', checkins, id) -- first write: needs no memory
redis.call('HSET', checkins, id, '{"at":' .. string.format('%.0f', now) .. ',' .. string.sub(said, 2))
return 1
