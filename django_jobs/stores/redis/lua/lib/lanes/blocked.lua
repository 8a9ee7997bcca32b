-- Jobs held back by a limit or by a pause of their type.  Letters of lanes: s = shared, a = alone, x = alone, a
-- suspect.  A member of `blocked` is "key NUL score NUL lane NUL id", and all scores are 0.  Therefore the members of
-- one key are one range, in the order in which they would have run.
--! on demand
--! keys blocked waits slots queued alone
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

-- Put the job into its lane, in the turn that it had.
local function back_to_lane(id, score, lane)
    redis.call('ZADD', lane == 's' and queued or alone, lane == 'x' and score - SUSPECT or score, id)
end

-- The score of the first job of one key; nil if there is none.
local function first_blocked(key)
    local head = redis.call('ZRANGEBYLEX', blocked, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, 1)[1]
    return head and select(2, parts_of(head))
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
            back_to_lane(id, score, lane)
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

-- A limit has grown, or is gone: let in the first jobs that it held back.  However many have room, the call lets in
-- `most` in all (500: some ms); the next claim that takes a job of the key, or the next check, continues.  Returns how
-- many.
local filled = 0
local function fill(key, room, most)
    local n = admit(key, math.max(0, math.min(room, most - filled)))
    filled = filled + n
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

-- The queue may have been at its limit with jobs waiting, and no worker would check again for a while.
local function tell_of_room()
    local lanes = redis.call('EXISTS', queued, alone) -- one command if nothing waits
    if lanes == 0 then
        return
    end
    local alone_waits = lanes == 2 or redis.call('EXISTS', alone) == 1
    if alone_waits then
        wake_up(wake_alone)
    end
    if lanes == 2 or not alone_waits then
        wake_up(wake)
    end
end
