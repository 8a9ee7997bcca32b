-- Tell one waiting worker to look.  One token is enough: who takes a job and leaves others puts it back.
--! keys wake wake_alone
local function wake_up(list)
    local waiting = redis.pcall('LLEN', list)
    if type(waiting) == 'table' then -- somebody put another type there
        redis.call('DEL', list)
        waiting = 0
    end
    if waiting == 0 then
        redis.call('RPUSH', list, '1')
    end
end
