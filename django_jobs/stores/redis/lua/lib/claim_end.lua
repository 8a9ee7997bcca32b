-- What happens first at every end of an attempt: check the token, take the claim away, free its slot.
--! keys jobs claims leases stops checkins queued alone
--! use clock record blocked endings holdings recent

-- Does this claim (false: there is none) have this token?  `token` is "token:claimed ms": after a failover that lost
-- writes, the counter may give the same token again, but not at the same time.
local function is_claim_of(claim, token)
    return claim and token and string.sub(claim, 1, #token + 1) == token .. ':'
end

local function owns(id, token)
    local claim = redis.call('HGET', claims, id)
    return is_claim_of(claim, token) and claim
end

-- What a caller presents that ends an attempt, in lines: the token; then, or nothing, the digest of the report by which
-- a remote worker ends it; then "overdue" if the attempt may end only because its lease is over.
local function parts_presented(presented)
    local token, report, overdue = string.match(presented, '^([%d:]+)\n?(%x*)\n?(.*)$')
    return token, report, overdue ~= '' and overdue
end

-- Was the lease extended at the last moment?
local function is_extended(claim)
    local ends = redis.call('ZSCORE', leases, string.match(claim, '^[^:]*:[^:]*:(.*)$') or '')
    return ends and tonumber(ends) > now
end

-- The same as `owns` for a caller that ends the attempt.  Returns the claim (false: it is stale) and the digest.  If the
-- attempt was killed, its slot and its job wait for this.
local function owns_at_end(id, presented)
    local token, report, overdue = parts_presented(presented)
    local claim = owns(id, token)
    if not claim then
        attempt_is_over(id, token or '')
    elseif overdue and is_extended(claim) then
        return false
    end
    return claim, report
end

local function note_report(id, report)
    if report ~= '' then
        note_recent('report:' .. id, report)
    end
end

-- The queue may have been at its limit with jobs waiting, and no worker would check again for a while.
local function tell_of_room()
    local lanes = redis.call('EXISTS', queued, alone) -- one command if nothing waits
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

-- Frees the slots of jobs that ended, and lets in as many.  `members` of `slots`; `freed`: limit key → how many.
local function free_slots(members, freed)
    if #members > 0 then
        redis.call('ZREM', slots, unpack(members))
        if redis.call('EXISTS', blocked) == 1 then
            for key, n in pairs(freed) do
                admit(key, n)
            end
        end
    end
end

-- The first write is HDEL, which needs no memory, so that all this works when Redis is full.  `quiet`: the caller ends
-- several claims and calls tell_of_room itself.
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
