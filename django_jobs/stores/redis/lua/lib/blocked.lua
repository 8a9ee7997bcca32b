-- Jobs held back by a limit or by a pause of their type.  Letters of lanes: s = shared, a = alone, x = alone, a suspect.
-- A member of `blocked` is  key NUL score NUL lane NUL id  and all scores are 0, so the members of one key are
-- one range in the order in which they would have run.
--! keys blocked waits slots
--! use ready

local function block(key, id, score, lane)
    local member = table.concat({key, string.format('%017.0f', score), lane, id}, '\0')
    redis.call('ZADD', blocked, 0, member)
    redis.call('HSET', waits, id, member)
end

-- The id, its score and its lane letter in a member of `blocked`.
local function parts_of(member)
    local key, score, lane, id = string.match(member, '^(%Z*)%z(%d+)%z(%a)%z(.*)$')
    return id, tonumber(score), lane, key
end

-- Take up to `limit` jobs of one key back to queued, at the place they had; they can run from now on.  Must come after a
-- write that needs no memory.  Into the lane first: where that has another type, the job stays blocked.
-- `each(id)`: what else is to be done.  Returns how many.
local function let_in(key, limit, each)
    local members = redis.call('ZRANGEBYLEX', blocked, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, limit)
    local ready = {}
    for _, member in ipairs(members) do
        local id, score, lane = parts_of(member)
        if id and redis.call('HGET', waits, id) == member then -- else it is elsewhere by now
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

-- The same, and workers are told.
local function admit(key, limit)
    local n = let_in(key, limit)
    if n > 0 then
        wake_up(wake)
        wake_up(wake_alone)
    end
    return n
end

-- How many hold a slot of that limit: counted from the holders themselves.
local function slots_taken(key)
    return redis.call('ZLEXCOUNT', slots, '[' .. key .. '\0', '(' .. key .. '\1')
end

-- The space of blocked keys that pauses of a job type use; no limit key starts like this.
local function pause_key(name)
    return '\2' .. name
end
