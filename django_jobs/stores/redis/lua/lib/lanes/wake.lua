-- Wake one waiting worker.  One token is enough: a worker that takes a job and leaves others puts the token back.  A key of
-- another type must not keep a job from its lane: workers look by themselves soon, and the key is set aside later.
--! keys wake wake_alone
local function wake_up(list)
    if redis.pcall('LLEN', list) == 0 then
        redis.call('RPUSH', list, '1')
    end
end
