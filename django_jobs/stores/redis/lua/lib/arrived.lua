-- The jobs of a lane that had arrived by a number of the queue.  Each priority has a range of scores of its own, and in
-- it what was handed back stands below the middle, the others above it by their numbers.
--! use ready

-- `act(lowest, highest)` for the range of each priority that has jobs, best first, until it returns true.
local function each_range(lane, up_to, act)
    local from = '-inf'
    while true do
        local head = redis.call('ZRANGEBYSCORE', lane, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if not head[2] then
            return
        end
        local range = math.floor(tonumber(head[2]) / STEP)
        if act(string.format('%.0f', range * STEP), string.format('%.0f', (range + 0.5) * STEP + up_to)) then
            return
        end
        local following = (range + 1) * STEP
        -- A score that no job of ours has may be so large that adding to it changes nothing.
        from = following > tonumber(head[2]) and string.format('%.0f', following) or '(' .. head[2]
    end
end

local function first_arrived(lane, up_to, limit)
    local found = {}
    each_range(lane, up_to, function(lowest, highest)
        local ids = redis.call('ZRANGEBYSCORE', lane, lowest, highest, 'LIMIT', 0, limit - #found)
        for _, id in ipairs(ids) do
            found[#found + 1] = id
        end
        return #found >= limit
    end)
    return found
end

local function count_arrived(lane, up_to)
    local n = 0
    each_range(lane, up_to, function(lowest, highest)
        n = n + redis.call('ZCOUNT', lane, lowest, highest)
    end)
    return n
end
