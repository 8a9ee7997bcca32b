-- A call whose reply was lost is sent again under the same number.  Each sender ("channel") numbers its calls to a
-- queue; its last answer is kept, so that the repeated call has no effect and gives the same answer.
-- ARGV  2 channel   3 number of the call on that channel, with "+" if an earlier request may still be under way
--! keys answers
local channel, number, in_doubt = ARGV[2], string.match(ARGV[3], '^%d+'), string.sub(ARGV[3], -1) == '+'

-- The answer given to this same call before; nil if the call is new.  A request that arrives after a later one of its
-- sender is refused: the sender has given up on it, and would not learn its effect.
local function answered()
    local last = redis.call('HGET', answers, channel)
    if not last then
        return nil
    end
    local latest = string.sub(last, 1, (string.find(last, ':', 1, true) or 1) - 1)
    if latest == number then
        return string.match(last, '^%d+:[^:]*:(.*)$')
    end
    if (tonumber(latest) or 0) > tonumber(number) then
        error('LATE: call ' .. number .. ' came after call ' .. latest)
    end
    return nil
end

-- Keep the answer (a string).  Must come after a write that needs no memory: at maxmemory, Redis refuses a script whose
-- first write is HSET.
local function answer(text)
    redis.call('HSET', answers, channel, number .. string.format(':%d:', now) .. text)
end

-- The same for a call that had no effect, if its answer must be kept nevertheless: a copy of the call may arrive
-- later, when there would be something to do.
local function answer_in_doubt(text)
    if in_doubt and not pcall(answer, text) then
        redis.pcall('HDEL', answers, '') -- first write: needs no memory; a user that may only add has no HDEL
        answer(text)
    end
end

-- Answer with these ids, one per line; none means that the call had no effect.
local function answer_ids(ids)
    if #ids > 0 then
        answer(table.concat(ids, '\n'))
    else
        answer_in_doubt('')
    end
end
