-- The jobs of a lane that had arrived by a number of the queue.  Each priority has its own range of scores; in it,
-- jobs that were handed back have scores below the middle, all others above it, by their numbers.  `lowest`: '0' = no
-- suspects.
--! on demand
--! use ready

-- For each priority that has jobs, best first, `act(first, last)` with the scores of its range, until it returns true.
local function each_range(lane, up_to, lowest, act)
    local from = lowest or '-inf'
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
        -- A foreign score may be so large that adding to it changes nothing.
        from = following > tonumber(head[2]) and string.format('%.0f', following) or '(' .. head[2]
    end
end

local function first_arrived(lane, up_to, limit, lowest)
    local found = {}
    each_range(lane, up_to, lowest, function(first, last)
        local ids = redis.call('ZRANGEBYSCORE', lane, first, last, 'LIMIT', 0, limit - #found)
        for _, id in ipairs(ids) do
            found[#found + 1] = id
        end
        return #found >= limit
    end)
    return found
end

local function count_arrived(lane, up_to, lowest)
    local n = 0
    each_range(lane, up_to, lowest, function(first, last)
        n = n + redis.call('ZCOUNT', lane, first, last)
    end)
    return n
end
