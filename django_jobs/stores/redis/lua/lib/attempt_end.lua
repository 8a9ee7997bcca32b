-- The beginning of every script that ends one attempt.
-- ARGV  1 clock   2 channel   3 number   4 id   5 token
--! keys jobs
--! use answers claim_end count finish

-- Take the claim away, and free what it held.  Returns record, controls, whether the job was asked to stop, holder; or
-- nil and the answer of this call: the answer given before, or "" if the claim is stale.
local function end_attempt(id, token)
    local before = answered()
    if before then
        return nil, before
    end
    local claim = owns_at_end(id, token)
    if not claim then
        return nil, ''
    end
    local record = redis.call('HGET', jobs, id) or ''
    local controls = controls_of(record)
    return record, controls, end_claim(id, claim, controls)
end

-- The job was asked to stop, so it is cancelled and does not wait again.  Returns its state.
local function stop_here(id, record, controls, archiving, holder)
    finish('cancelled', id, record, controls, archiving, holder)
    count('cancelled', 1)
    return 'cancelled'
end
