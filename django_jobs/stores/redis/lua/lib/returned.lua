-- Jobs that succeeded, returned None and have left the history within the last minute: who asks for one is told so.  Their
-- ids stand in two texts, which cost a fifth of what two sets would: many jobs end, and few are asked for.  The newer text
-- becomes the older after a minute, or when it is long; the older goes by itself when all its ids are a minute old.
--! keys returned returned_before
local TOLD, LONGEST_TEXT = 60000, 50000 * 33 -- ms; bytes: 50,000 ids that we made

-- Notes these ids.  A key of another type costs no job: it is put aside later.
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
