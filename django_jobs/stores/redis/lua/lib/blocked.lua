-- Jobs held back by a limit or by a pause of their type.  Letters of lanes: s = shared, a = alone, x = alone, a
-- suspect.  A member of `blocked` is "key NUL score NUL lane NUL id", and all scores are 0.  Therefore the members of
-- one key are one range, in the order in which they would have run.
--! on demand
--! keys blocked waits slots
--! use ready

local function block(key, id, score, lane)
    local member = table.concat({key, string.format('%017.0f', score), lane, id}, '\0')
    redis.call('ZADD', blocked, 0, member)
    redis.call('HSET', waits, id, member)
end

-- The id, the score, the lane letter and the key in a member of `blocked`.
local function parts_of(member)
    local key, score, lane, id = string.match(member, '^(%Z*)%z(%d+)%z(%a)%z(.*)$')
    return id, tonumber(score), lane, key
end

-- Move up to `limit` jobs of one key back to queued, to the place they had; they can run from now on.  Must come after a
-- write that needs no memory.  The job enters the lane before it leaves `blocked`: if the lane has another type, the job
-- stays blocked.  `each(id)`: called for each job.  Returns how many members were removed from `blocked`.
local function let_in(key, limit, each)
    local members = redis.call('ZRANGEBYLEX', blocked, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, limit)
    local ready = {}
    for _, member in ipairs(members) do
        local id, score, lane = parts_of(member)
        if id and redis.call('HGET', waits, id) == member then -- otherwise, the job has moved
            redis.call('ZADD', lane == 's' and queued or alone, lane == 'x' and score - SUSPECT or score, id)
            redis.call('HDEL', waits, id)
            ready[#ready + 1] = now
            ready[#ready + 1] = id
            if each then
                each(id)
            end
        end
        redis.call('ZREM', blocked, member)
    end
    if #ready > 0 then
        note_since(ready)
    end
    return #members
end

-- The same, and workers are woken.
local function admit(key, limit)
    local n = let_in(key, limit)
    if n > 0 then
        wake_up(wake)
        wake_up(wake_alone)
    end
    return n
end

-- How many slots of that limit are taken: counted from the slots themselves.
local function slots_taken(key)
    return redis.call('ZLEXCOUNT', slots, '[' .. key .. '\0', '(' .. key .. '\1')
end

-- The key in `blocked` for a pause of a job type; no limit key starts like this.
local function pause_key(name)
    return '\2' .. name
end
