-- void: jobs that are not there can never be enqueued under these ids from now on
--
-- ARGV  1 clock   2 ids are remembered for (ms)   then the ids
-- Returns those that are not in the store, each with the state in which it ended ("" = it was never there).
--! use clock remembered
--! keys jobs
local kept, out = tonumber(ARGV[2]), {}
for i = 3, #ARGV do
    local id = ARGV[i]
    if redis.call('HEXISTS', jobs, id) == 0 then
        local state = ''
        if is_remembered(id, kept) then
            state = string.match(redis.call('HGET', remembered, id) or '', ':(%a+)$') or ''
        end
        if state == '' then
            remember(id, 'void')
        end
        out[#out + 1] = id
        out[#out + 1] = state
    end
end
return out
