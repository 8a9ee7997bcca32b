-- The effects of the last calls of remote workers, so that a call that is sent again gets the same answer.  Two hashes, so that
-- nothing has to search for what is old: the newer one becomes the older one after a quarter of an hour, or when it is
-- large, and the older one expires.
--! keys recent recent_before
local note_recent, find_recent
do
    local RECENT_KEPT, MOST_RECENT = 900000, 50000 -- ms; entries of one hash

    -- A key of another type must not keep an attempt from ending: it is set aside later.
    note_recent = function(field, value)
        local left = redis.pcall('PTTL', recent)
        if left >= 0 and left < RECENT_KEPT then
            redis.call('RENAME', recent, recent_before)
            left = -2
        end
        redis.pcall('HSET', recent, field, value)
        if left < 0 then
            redis.call('PEXPIRE', recent, 2 * RECENT_KEPT)
        end
        local size = redis.pcall('HLEN', recent)
        if type(size) == 'number' and size > MOST_RECENT then
            redis.call('RENAME', recent, recent_before)
        end
    end

    find_recent = function(field)
        for _, key in ipairs({recent, recent_before}) do
            local value = redis.pcall('HGET', key, field)
            if type(value) == 'string' then
                return value
            end
        end
    end
end
