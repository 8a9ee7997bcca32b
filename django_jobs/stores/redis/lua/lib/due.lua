-- scheduled and retry → queued, for jobs that are due; never more than a hundred in one call.
--! keys jobs scheduled retry tries
--! use record ready next_due failed

local function promote_from(zset, limit)
    if first_due(zset) ~= 0 then
        return 0
    end
    heads[zset] = nil
    local found = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
    if #found == 0 then
        return 0
    end
    local ids, ready = {}, {}
    for i = 1, #found, 2 do
        ids[#ids + 1] = found[i]
    end
    local records = redis.call('HMGET', jobs, unpack(ids))
    local tried = redis.call('EXISTS', tries) == 1 and redis.call('HMGET', tries, unpack(ids)) or {}
    redis.call('ZCARD', queued) -- fails on a key of another type, before a job is taken out
    redis.call('ZCARD', alone)
    redis.call('ZREM', zset, unpack(ids)) -- first write: needs no memory
    local moved = 0
    for i, id in ipairs(ids) do
        if zset == retry then
            failed.leave(id, found[2 * i])
        end
        if records[i] then
            make_ready(id, controls_of(records[i]), nil, has_crashed(tried[i]))
            ready[2 * moved + 1], ready[2 * moved + 2] = found[2 * i], id -- it could run when it was due
            moved = moved + 1
        end
    end
    if moved > 0 then
        note_since(ready)
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
