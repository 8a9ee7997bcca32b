-- A call whose reply was lost is sent again under the same number.  Each sender ("channel") numbers its calls to a
-- queue; its last answer is kept, so that the repeated call has no effect and gives the same answer.
-- ARGV  2 channel   3 number of the call on that channel, with "+" if an earlier request may still be under way
--! keys answers
--! use clock
local answers_kept = nil -- ms; nil: maintenance removes old answers
local OF_WORKFLOW = 600000 -- ms: workflows come and go, and each has a key for its answers
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

-- Keep the answer (a text, a number, or a list of texts without line breaks), and return it.  `changed`: the call had an
-- effect.  Then this must come after a write that needs no memory: at maxmemory, Redis refuses a script whose first write
-- is HSET.  Otherwise, the answer is kept only if a copy of the call may arrive later, when there would be something to do.
local function reply(value, changed)
    if changed or in_doubt then
        local text = type(value) == 'table' and table.concat(value, '\n') or tostring(value)
        text = number .. string.format(':%d:', now) .. text
        if changed then
            redis.call('HSET', answers, channel, text)
        elseif type(redis.pcall('HSET', answers, channel, text)) == 'table' then -- an error: the memory is full
            redis.pcall('HDEL', answers, '') -- first write: needs no memory; a user that may only add has no HDEL
            redis.call('HSET', answers, channel, text)
        end
        if answers_kept then
            redis.pcall('PEXPIRE', answers, answers_kept) -- a user that may only add has no PEXPIRE
        end
    end
    return value
end

-- The same for a list of ids: none means that the call had no effect.
local function reply_ids(ids)
    return reply(ids, #ids > 0)
end

-- The same for a call that looks for work, and looks again if it is repeated: only its number is kept.
local function reply_again(value, changed)
    reply('', changed)
    return value
end
