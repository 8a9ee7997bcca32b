-- begin: a suspect whose next crash would be its last begins; from now on, that crash is counted
--
-- Arguments: id, token.
-- Returns 1, or 0 if the claim is stale.
--! answers number
--! args id token
--! use claim_end log
--! keys tries
if not owns(id, token) then
    return reply(0)
end
local tried = redis.call('HGET', tries, id)
if waits_to_begin(tried) then
    redis.call('HDEL', tries, id) -- first write: needs no memory
    redis.call('HSET', tries, id, (string.gsub(tried, ':00', ':0', 1)))
end
return reply(1, true)
