-- prune: finished jobs that are too old, or too many → deleted
--
-- Arguments: most (how many succeeded, cancelled and expired jobs are kept), ttl (for how long, ms), dead_most (how many
--       dead jobs are kept), dead_ttl, limit (for each state), ids_ttl (ids are remembered for, ms)
-- Returns state, how many were deleted, flat.
--! answers again
--! args most:int ttl:int dead_most:int dead_ttl:int limit:int ids_ttl:int
--! use record count finish failed endings
local STAYS, MOST_STAYING = 60000, 100000 -- as in lib/ends/trim.lua
local out, pruned = {}, false

-- Those of these jobs whose last attempt cannot be running any more.
local function over(ids)
    if redis.call('EXISTS', stops) == 0 then
        return ids
    end
    local found = {}
    for _, id in ipairs(ids) do
        if not is_ending(id) then
            found[#found + 1] = id
        end
    end
    return found
end

local function prune_from(state, place, most, ttl)
    local ids = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('(%.0f', now - ttl), 'LIMIT', 0, limit)
    local size = redis.call('ZCARD', place)
    local excess = size - #ids - most
    if excess > 0 and size - most <= MOST_STAYING then -- a caller that waits for the end can read the job for a minute
        local old = redis.call('ZCOUNT', place, '-inf', string.format('(%.0f', now - STAYS))
        excess = math.min(excess, old - #ids)
    end
    if excess > 0 and #ids < limit then
        -- in both cases the oldest come first, so one range has those that are too old and the surplus behind them
        ids = redis.call('ZRANGE', place, 0, math.min(#ids + excess, limit) - 1)
    end
    if place == dead or place == cancelled then
        ids = over(ids)
    end
    if #ids > 0 then
        pruned = true
        local ended = redis.call('ZMSCORE', place, unpack(ids))
        redis.call('ZREM', place, unpack(ids))
        for i, id in ipairs(ids) do
            if place == dead then
                failed.leave(id, ended[i])
            elseif place == kept then
                local controls = controls_of(redis.call('HGET', jobs, id))
                ended[i] = ended[i] - (controls and tonumber(controls.keep_result) or 0)
            end
        end
        forget(ids, state, ended)
    end
    out[#out + 1] = state
    out[#out + 1] = #ids
    return #ids
end

prune_from('succeeded', succeeded, most, ttl)
prune_from('succeeded', kept, math.huge, 0) -- their score is the time until which they are kept
prune_from('cancelled', cancelled, most, ttl)
prune_from('expired', expired, most, ttl)
local trimmed = prune_from('dead', dead, dead_most, dead_ttl)
if trimmed > 0 then
    count('trimmed_dead', trimmed) -- dead jobs are never deleted without being counted
end

-- Delete the ids whose time is over.  As long as its job is in the store, an id stays and is checked again later.
local function prune_remembered()
    local ids = redis.call(
        'ZRANGEBYSCORE', remembered_at, '-inf', string.format('%.0f', now - ids_ttl), 'LIMIT', 0, limit
    )
    local gone = {}
    for i, record in ipairs(#ids > 0 and redis.call('HMGET', jobs, unpack(ids)) or {}) do
        if record then
            redis.call('ZADD', remembered_at, now, ids[i])
        else
            gone[#gone + 1] = ids[i]
        end
    end
    if #gone > 0 then
        redis.call('ZREM', remembered_at, unpack(gone))
        redis.call('HDEL', remembered, unpack(gone))
    end
    out[#out + 1] = 'remembered'
    out[#out + 1] = #ids
end
prune_remembered()
failed.drop_empty_groups()
return reply_again(out, pruned)
