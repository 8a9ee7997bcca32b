-- Unique locks: digest → "until:id"; until 0 = as long as the job is covered.  A job frees only its own lock.
--! on demand
--! keys unique
--! use as_table

local function digest_of(controls)
    return controls and type(controls.unique) == 'string' and controls.unique or nil
end

-- The holder in a lock's value, and until when it holds the lock.
local function holder_of(value)
    if not value then
        return nil, 0
    end
    local ends = string.match(value, '^(%d+):')
    return string.sub(value, #(ends or '') + 2), tonumber(ends) or 0
end

local function lock_holder(digest)
    return holder_of(redis.call('HGET', unique, digest))
end

local function lock(id, controls)
    local ends = 0
    if controls.unique_mode == 'period' then
        ends = now + (tonumber(controls.unique_for) or 0)
    end
    set_fields(unique, redis.call('HLEN', unique), {controls.unique, string.format('%.0f:', ends) .. id})
end

-- The job leaves the store: free its lock, whatever the mode.
local function unlock_for_good(id, controls)
    local digest = digest_of(controls)
    if digest and lock_holder(digest) == id then
        redis.call('HDEL', unique, digest)
    end
end

-- The digest of the lock that is freed when the job ends: any lock but one for a period.
local function lock_to_free(controls)
    return digest_of(controls) and controls.unique_mode ~= 'period' and controls.unique or nil
end

local function lock_ends_at_start(controls)
    return digest_of(controls) and (not controls.unique_mode or controls.unique_mode == 'queued')
end

-- The job ends.
local function unlock(id, controls)
    if lock_to_free(controls) then
        unlock_for_good(id, controls)
    end
end

-- Many jobs end, or start, in one call; `ids[i]` may hold the lock `digests[i]`.
local function unlock_many(digests, ids)
    local owned = {}
    for i, value in ipairs(redis.call('HMGET', unique, unpack(digests))) do
        if value == '0:' .. ids[i] or holder_of(value) == ids[i] then
            owned[#owned + 1] = digests[i]
        end
    end
    if #owned > 0 then
        redis.call('HDEL', unique, unpack(owned))
    end
end
