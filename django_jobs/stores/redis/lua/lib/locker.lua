-- Which job holds a unique key and is still covered by it.
--! keys jobs
--! use ended unique

local function covered(holder, ends)
    if ends > now then
        return true
    end
    return ends == 0 and redis.call('HEXISTS', jobs, holder) == 1 and not ended_state(holder)
end

-- The job that holds the key and is covered by it.
local function locker(digest)
    local holder, ends = lock_holder(digest)
    return holder and covered(holder, ends) and holder
end
