-- Wake one waiting worker.  One token is enough: a worker that takes a job and leaves others puts the token back.
--! keys wake wake_alone
local function wake_up(list)
    local waiting = redis.pcall('LLEN', list)
    if type(waiting) == 'table' then -- the key has another type
        redis.call('DEL', list)
        waiting = 0
    end
    if waiting == 0 then
        redis.call('RPUSH', list, '1')
    end
end
