-- What every end of an attempt does first: check the token, take the claim away, free its slot.
--! keys jobs claims leases stops checkins queued alone
--! use record blocked endings holdings

-- Is the claim still this token's?  Given as "token:claimed ms": a counter that went back (a failover that lost writes)
-- gives a token a second time, but not at the same time.
local function owns(id, token)
    local claim = redis.call('HGET', claims, id)
    return claim and string.sub(claim, 1, #token + 1) == token .. ':' and claim
end

-- The same for who says that the attempt has ended; of one that was killed this is the news that is waited for.
local function owns_at_end(id, token)
    local claim = owns(id, token)
    if not claim then
        attempt_is_over(id, token)
    end
    return claim
end

-- The queue may have been at its limit with jobs waiting, and nobody looks again by himself for a while.
local function tell_of_room()
    local lanes = redis.call('EXISTS', queued, alone) -- one command where nothing waits
    if lanes == 0 then
        return
    end
    local alone_waits = lanes == 2 or redis.call('EXISTS', alone) == 1
    if alone_waits then
        wake_up(wake_alone)
    end
    if lanes == 2 or not alone_waits then
        wake_up(wake)
    end
end

-- First write HDEL: it needs no memory, so that all of this works when Redis is full.
-- `quiet`: the caller ends several and calls tell_of_room himself.
local function end_claim(id, claim, controls, quiet)
    redis.call('HDEL', claims, id)
    note_end(id, claim)
    redis.call('HDEL', checkins, id)
    local stopped = redis.call('HDEL', stops, id) == 1
    local holder = string.match(claim, '^[^:]*:[^:]*:(.*)$') or ''
    if string.sub(holder, -#id - 1) == ':' .. id then -- a holder of this job only
        redis.call('ZREM', leases, holder)
    end
    local key = limit_key(controls)
    if key then
        redis.call('ZREM', slots, key .. '\0' .. id)
        admit(key, 1)
    end
    if not quiet then
        tell_of_room()
    end
    return stopped, holder
end
