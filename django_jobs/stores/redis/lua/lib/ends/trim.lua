-- Which succeeded jobs exceed the number that HISTORY keeps.  A job with a result stays for a minute, so that a
-- waiting caller gets it.  `result_at` is when the last job with a result ended; of the jobs that ended up to
-- `trimmed_to`, only jobs with results are left, so that they are not checked again.
--! keys succeeded results result_at trimmed_to
local STAYS, MOST_STAYING = 60000, 100000 -- ms; above that number, the oldest go whatever they returned

-- "run ms:" and nothing after it: the function returned None.
local function returned_nothing(result)
    return not result or string.byte(result, -1) == 58
end

-- The result of a job that is waited for, changed so that the job stays as if it had a result.
local function stays(result)
    return returned_nothing(result) and result .. 'null' or result
end

-- The jobs of `ids` (oldest first) that returned None and ended within the last minute; called before they go.
local function young_without_result(ids)
    local last = redis.call('ZSCORE', succeeded, ids[#ids])
    if not last or tonumber(last) + STAYS <= now then
        return {}
    end
    local first = redis.call('ZSCORE', succeeded, ids[1])
    if first and (tonumber(redis.pcall('GET', result_at) or 0) or 0) < tonumber(first) then
        return ids -- none of them returned anything else
    end
    local nothing = {}
    for i, result in ipairs(redis.call('HMGET', results, unpack(ids))) do
        if returned_nothing(result) then
            nothing[#nothing + 1] = ids[i]
        end
    end
    return nothing
end

-- Up to a thousand of the jobs to delete, oldest first, and whether they are the oldest of all.  `excess`: how many there
-- are too many.
local function too_many(excess)
    local limit = math.min(excess, 1000)
    local last = tonumber(redis.pcall('GET', result_at) or 0)
    if not last or last + STAYS < now or excess > MOST_STAYING then
        return redis.call('ZRANGE', succeeded, 0, limit - 1), true
    end
    local young = now - STAYS
    local ids = redis.call('ZRANGEBYSCORE', succeeded, '-inf', string.format('(%.0f', young), 'LIMIT', 0, limit)
    local mark = math.max(tonumber(redis.call('GET', trimmed_to) or 0) or 0, young - 1)
    local todo = math.min(excess - redis.call('ZCOUNT', succeeded, '-inf', string.format('%.0f', mark)), limit - #ids)
    if todo <= 0 then
        return ids
    end
    local found = redis.call(
        'ZRANGEBYSCORE', succeeded, string.format('(%.0f', mark), '+inf', 'WITHSCORES', 'LIMIT', 0, todo
    )
    local looked_at = {}
    for i = 1, #found, 2 do
        looked_at[#looked_at + 1] = found[i]
    end
    if #looked_at == 0 then
        return ids
    end
    for i, result in ipairs(redis.call('HMGET', results, unpack(looked_at))) do
        if returned_nothing(result) then
            ids[#ids + 1] = looked_at[i]
        end
    end
    -- Other jobs of the last millisecond may not have been checked.
    redis.call('SET', trimmed_to, string.format('%.0f', tonumber(found[#found]) - 1))
    return ids
end
