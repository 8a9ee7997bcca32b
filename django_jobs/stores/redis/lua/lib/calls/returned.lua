-- Jobs that succeeded, returned None and left the history within the last minute, so that callers who ask for one get
-- this answer.  Their ids are in two texts, which cost less than two sets: many jobs end, and few are asked for.  The
-- newer text becomes the older one after a minute, or when it is long; the older one expires when all its ids are a
-- minute old.
--! keys returned returned_before
local TOLD, LONGEST_TEXT = 60000, 50000 * 33 -- ms; bytes: 50,000 ids made by this package

-- Notes these ids.  A key of another type must not lose a job: it is set aside later.
local function note_returned(ids)
    local left = redis.pcall('PTTL', returned)
    if left >= 0 and left < TOLD then
        redis.call('RENAME', returned, returned_before)
        left = -2
    end
    local size = redis.pcall('APPEND', returned, '\n' .. table.concat(ids, '\n') .. '\n')
    if left < 0 then
        redis.call('PEXPIRE', returned, 2 * TOLD)
    end
    if type(size) == 'number' and size > LONGEST_TEXT then
        redis.call('RENAME', returned, returned_before)
    end
end
