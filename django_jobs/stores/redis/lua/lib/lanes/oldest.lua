-- Since when the oldest of the jobs can run that could run now.
--! keys scheduled retry queued alone jobs
--! use record score since
local LOOKED_AT = 20 -- jobs of one priority that are read at a time
local MOST = 1000 -- jobs of one lane that are read in all

-- In each priority of a lane, jobs are ordered by arrival: the first job without an entry in `since` is the oldest of
-- these, and its record has its time.  Jobs that were handed back come before the middle, and have an entry in
-- `since`, as have all jobs that came to the lane in another way.
local function oldest_in(lane, noted, first)
    local from, left = '-inf', MOST
    while left > 0 do
        local head = redis.call('ZRANGEBYSCORE', lane, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if not head[2] then
            return first
        end
        local range = math.floor(tonumber(head[2]) / STEP)
        local low, high = string.format('%.0f', (range + 0.5) * STEP), string.format('(%.0f', (range + 1) * STEP)
        local offset, found = 0, nil
        left = left - 1
        while not found and left > 0 do
            local ids = redis.call('ZRANGEBYSCORE', lane, low, high, 'LIMIT', offset, noted and LOOKED_AT or 1)
            local known = noted and #ids > 0 and since_of(ids) or {}
            for i, id in ipairs(ids) do
                if not known[i] then
                    found = id
                    break
                end
            end
            offset, left = offset + #ids, left - #ids
            if #ids == 0 then
                break
            end
        end
        local at = found and enqueued_at(redis.call('HGET', jobs, found)) or 0
        if at > 0 and at < first then
            first = at
        end
        local following = (range + 1) * STEP
        -- A foreign score may be so large that adding to it changes nothing.
        from = following > tonumber(head[2]) and string.format('%.0f', following) or '(' .. head[2]
    end
    return first
end

-- ms; math.huge if no job could run.
local function oldest()
    local first = math.huge
    for _, zset in ipairs({scheduled, retry}) do -- due, but no claim has promoted it yet
        local due = tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2])
        if due and due <= now and due < first then
            first = due
        end
    end
    local noted = redis.pcall('ZRANGEBYSCORE', since, 1, '+inf', 'WITHSCORES', 'LIMIT', 0, LOOKED_AT)
    for i = 1, #noted, 2 do
        if redis.call('ZSCORE', queued, noted[i]) or redis.call('ZSCORE', alone, noted[i]) then
            first = math.min(first, tonumber(noted[i + 1]))
            break
        end
    end
    first = oldest_in(queued, #noted > 0, first)
    return oldest_in(alone, #noted > 0, first)
end
