-- A call whose reply was lost is sent again, byte for byte.  Each connection is a channel that counts its calls; the
-- last answer is kept, so that the second call has no effect and says the same.
-- ARGV  2 channel   3 number of the call on that channel
--! keys answers
local channel, number = ARGV[2], ARGV[3]

-- The answer given to this very call before; nil if it is new.
local function answered()
    local last = redis.call('HGET', answers, channel)
    if last and string.sub(last, 1, #number + 1) == number .. ':' then
        local from = string.find(last, ':', #number + 2, true)
        return string.sub(last, from + 1)
    end
    return nil
end

-- Keep the answer (a string).  Must come after a write that needs no memory: HSET is refused first at maxmemory.
local function answer(text)
    redis.call('HSET', answers, channel, number .. ':' .. now .. ':' .. text)
end
