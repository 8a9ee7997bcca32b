-- checkin: stores the last check-in of a running job
--
-- Arguments: id, token, said (JSON).
-- Returns 1, or 0 if the claim is stale.
--! answers number
--! args id token said
--! use claim_end
if not owns(id, token) then
    return reply(0)
end
redis.call('HDEL', checkins, id) -- first write: needs no memory
redis.call('HSET', checkins, id, '{"at":' .. string.format('%.0f', now) .. ',' .. string.sub(said, 2))
return reply(1, true)
