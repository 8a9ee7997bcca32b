-- When the next job with a time is due.
--! keys scheduled retry
local heads = {} -- zset → its first member and score, valid while nothing has been taken out

-- ms until the first job of the zset is due; nil if it is empty.
local function first_due(zset)
    heads[zset] = heads[zset] or redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
    local score = tonumber(heads[zset][2])
    return score and math.max(0, score - now)
end

-- ms until the next job is due; -1 = there is none.
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
