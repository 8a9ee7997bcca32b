-- scheduled and retry → queued, for jobs that are due; never more than a hundred in one call.
--! keys jobs scheduled retry tries stops blocked waits leases slots unique
--! use record ready next_due failed endings

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
    local killed = redis.call('EXISTS', stops) == 1 -- may an attempt of one of them still run?
    if killed then -- then their ends may be met here
        for _, key in ipairs({blocked, leases, slots}) do
            redis.call('ZCARD', key)
        end
        for _, key in ipairs({stops, waits, unique}) do
            redis.call('HLEN', key)
        end
    end
    redis.call('ZREM', zset, unpack(ids)) -- first write: needs no memory
    local moved = 0
    for i, id in ipairs(ids) do
        if zset == retry then
            failed.leave(id, found[2 * i])
        end
        if records[i] then
            local controls, crashed = controls_of(records[i]), has_crashed(tried[i])
            if not (killed and wait_for_end(id, controls, crashed)) then
                make_ready(id, controls, nil, crashed)
                ready[#ready + 1], ready[#ready + 2] = found[2 * i], id -- it could run when it was due
            end
            moved = moved + 1
        end
    end
    if #ready > 0 then
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
