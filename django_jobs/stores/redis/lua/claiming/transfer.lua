-- transfer: gives the claim to another holder, with its own lease
--
-- Arguments: id, token, holder (the new one), lease (ms).
-- Returns 1, or 0 if the claim is stale.  An attempt that was killed meanwhile goes on at the new holder.  A holder that
-- has the claim already keeps a lease that is longer: it may have extended it before it was handed over.
--! answers number
--! args id token holder lease:int
--! use claim_end
local claim = owns(id, token)
if not claim then
    local value = redis.call('HGET', stops, id)
    local old, killed = killed_attempt(value)
    -- A remote holder that only confirms its claim is told that it is stale, and does not begin.
    if not killed or killed ~= string.match(token, '^%d+') or string.sub(old, -#id - 1) == ':' .. id then
        return reply(0)
    end
    local asked, rest = string.match(value, '^(%d+:)%Z*(%z.*)$')
    redis.call('ZREM', leases, '') -- first write: needs no memory
    redis.call('ZADD', leases, now + lease, holder)
    redis.call('HSET', stops, id, asked .. holder .. rest)
    return reply(0, true)
end
local asked = string.match(redis.call('HGET', stops, id) or '', '^%d+:')
local number, claimed, old = string.match(claim, '^([^:]*):([^:]*):(.*)$')
redis.call('HDEL', claims, id) -- first write: needs no memory
note_end(id, claim)
if old ~= holder and string.sub(old, -#id - 1) == ':' .. id then
    redis.call('ZREM', leases, old)
end
redis.call('HSET', claims, id, number .. ':' .. claimed .. ':' .. holder)
redis.call('ZADD', leases, old == holder and 'GT' or 'CH', now + lease, holder)
if asked then -- the new holder is told to stop the job
    redis.call('HSET', stops, id, asked .. holder)
end
return reply(1, true)
