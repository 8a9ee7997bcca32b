-- A call whose reply was lost is sent again under the same number.  Each sender ("channel") counts its calls to a queue;
-- its last answer is kept, so that the second sending has no effect and says the same.
-- ARGV  2 channel   3 number of the call on that channel, with "+" if an earlier request may still be under way
--! keys answers
local channel, number, in_doubt = ARGV[2], string.match(ARGV[3], '^%d+'), string.sub(ARGV[3], -1) == '+'

-- The answer given to this very call before; nil if it is new.  A request that comes after a later one of its sender is
-- refused: the sender has given up on it, and would not know of what it did.
local function answered()
    local last = redis.call('HGET', answers, channel)
    if not last then
        return nil
    end
    local latest, from = string.match(last, '^(%d+):[^:]*:()')
    if latest == number then
        return string.sub(last, from)
    end
    if latest and tonumber(latest) > tonumber(number) then
        error('LATE: call ' .. number .. ' came after call ' .. latest)
    end
    return nil
end

-- Keep the answer (a string).  Must come after a write that needs no memory: HSET is refused first at maxmemory.
local function answer(text)
    redis.call('HSET', answers, channel, number .. ':' .. now .. ':' .. text)
end

-- The same for a call that had no effect, if it must be known all the same: a copy of it may come later, when there is
-- something to do.
local function answer_in_doubt(text)
    if in_doubt then
        redis.call('HDEL', answers, '') -- first write: needs no memory
        answer(text)
    end
end
