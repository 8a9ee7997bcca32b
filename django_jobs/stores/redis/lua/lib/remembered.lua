-- Ids that must not be used again, although their job has left the store.  `remembered` maps id → digest, or
-- "digest:state" once the job has gone; the score in `remembered_at` is the time when it was enqueued, later when it
-- ended.
--! on demand
--! keys remembered remembered_at

local function remember(id, digest)
    redis.call('HSET', remembered, id, digest)
    redis.call('ZADD', remembered_at, now, id)
end

local anything_remembered
-- `kept`: how long after the end (ms).
local function is_remembered(id, kept)
    if anything_remembered == nil then
        anything_remembered = redis.call('EXISTS', remembered) == 1
    end
    if not anything_remembered or redis.call('HEXISTS', remembered, id) == 0 then
        return false
    end
    local at = redis.call('ZSCORE', remembered_at, id)
    return at and tonumber(at) + kept > now
end

-- These jobs leave the store; `ended[i]` is when they ended (ms).  Must come after a write that needs no memory.
-- A key of another type must not keep jobs from leaving: it is set aside later.
local function remember_gone(ids, state, ended)
    local digests = redis.pcall('HMGET', remembered, unpack(ids))
    if digests.err then
        return
    end
    local values, scores = {}, {}
    for i, digest in ipairs(digests) do
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
