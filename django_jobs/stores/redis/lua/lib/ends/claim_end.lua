-- May a caller end or extend an attempt?  Its token is checked.
--! keys jobs claims leases stops checkins
--! use clock record endings holdings recent

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
