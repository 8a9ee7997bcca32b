-- Ids that must not be used again, although their job has left the store.  `remembered` maps id → digest, or
-- "digest:state" once the job has gone, "digest:>number>queue" if it has left for another queue with the move of this
-- number, "moved:number" if another queue has the id (vacate.lua), "void", or
-- "digest:=answer>holder" if another job had the unique key: the same call, sent again after the holder has ended, gets
-- the same answer, and whoever asks for the id finds the holder.  The score in `remembered_at` is the time when it was
-- enqueued, later when it ended.
--! on demand
--! keys remembered remembered_at

local function remember(id, digest, from)
    redis.call('HSET', remembered, id, digest)
    redis.call('ZADD', remembered_at, from or now, id)
end

-- No call that comes later may enqueue a job with this id.  `kept`: ids are remembered for (ms), perhaps for seconds; a
-- call may come late by more than that.
local function refuse(id, value, kept)
    local LEAST = 3600000 -- ms, as identities are kept (LEAST_KEPT in upkeep.py)
    remember(id, value, string.format('%.0f', now + math.max(0, LEAST - kept)))
end

-- The answer to the call that enqueues an id which is remembered as `value`.
local function answer_to(value)
    return string.sub(value, 1, 6) == 'moved:' and 'moved' or string.match(value, ':=(%a+)') or 'exists'
end

local anything_remembered
-- Its entry, or false.  `kept`: how long after the end (ms).
local function is_remembered(id, kept)
    if anything_remembered == nil then
        anything_remembered = redis.call('EXISTS', remembered) == 1
    end
    local value = anything_remembered and redis.call('HGET', remembered, id)
    local at = value and redis.call('ZSCORE', remembered_at, id)
    return at and tonumber(at) + kept > now and value
end

-- These jobs leave the store; `ended[i]` is when they ended (ms).  Must come after a write that needs no memory.
-- A key of another type must not keep jobs from leaving: it is set aside later.
local function remember_gone(ids, state, ended)
    local values, scores = {}, {}
    for i, digest in ipairs(redis.pcall('HMGET', remembered, unpack(ids))) do
        if digest then
            values[#values + 1] = ids[i]
            values[#values + 1] = string.match(digest, '^[^:]*') .. ':' .. state
            scores[#scores + 1] = string.format('%.0f', ended[i])
            scores[#scores + 1] = ids[i]
        end
    end
    if #values > 0 then
        redis.call('HSET', remembered, unpack(values))
        redis.pcall('ZADD', remembered_at, unpack(scores))
    end
end
