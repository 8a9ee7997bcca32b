-- scheduled and retry → queued, those whose time has come; never more than a hundred in one call.
--! keys jobs scheduled retry tries
--! use record ready

local heads = {} -- zset → its first member and score, while nothing has been taken out

-- ms until its first one is due; nil if it is empty.
local function first_due(zset)
    heads[zset] = heads[zset] or redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
    local score = tonumber(heads[zset][2])
    return score and math.max(0, score - now)
end

local function promote_from(zset, limit)
    if first_due(zset) ~= 0 then
        return 0
    end
    heads[zset] = nil
    local ids = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', 0, limit)
    if #ids == 0 then
        return 0
    end
    local records = redis.call('HMGET', jobs, unpack(ids))
    local tried = redis.call('EXISTS', tries) == 1 and redis.call('HMGET', tries, unpack(ids)) or {}
    redis.call('ZCARD', queued) -- of another type it fails before a job is taken out
    redis.call('ZCARD', alone)
    redis.call('ZREM', zset, unpack(ids)) -- first write: needs no memory
    local moved = 0
    for i, id in ipairs(ids) do
        if records[i] then
            make_ready(id, controls_of(records[i]), nil, has_crashed(tried[i]))
            moved = moved + 1
        end
    end
    return moved
end

local function promote_due(limit)
    local moved = promote_from(retry, limit)
    if moved < limit then
        moved = moved + promote_from(scheduled, limit - moved)
    end
    return moved
end

-- ms until the next one is due; -1 = there is none.
local function next_due()
    local due = -1
    for _, zset in ipairs({scheduled, retry}) do
        local wait = first_due(zset)
        if wait then
            due = due < 0 and wait or math.min(due, wait)
        end
    end
    return due
end
