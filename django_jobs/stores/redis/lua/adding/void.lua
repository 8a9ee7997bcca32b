-- void: jobs that are not there can never be enqueued under these ids from now on
--
-- Arguments: kept (ids are remembered for, ms), then the ids.
-- Returns those that are not in the store, each with the state in which it ended ("" = it was never there).
--! answers again
--! args kept:int
--! use remembered
--! keys jobs
local out = {}
for i = FIRST, #ARGV do
    local id = ARGV[i]
    if redis.call('HEXISTS', jobs, id) == 0 then
        local entry = is_remembered(id, kept) or ''
        local state = string.match(entry, '^[^:]*:(%a+)$') or ''
        if string.find(entry, ':>', 1, true) then -- it is in another queue; remember that as long as somebody asks
            redis.call('ZADD', remembered_at, string.format('%.0f', now + 720 * 3600000), id) -- as leave_for does
        else
            if state == '' and not string.find(entry, ':=', 1, true) then
                refuse(id, 'void', kept)
            end
            out[#out + 1] = id
            out[#out + 1] = state
        end
    end
end
return reply_again(out, #out > 0)
