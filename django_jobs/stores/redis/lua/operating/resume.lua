-- resume: ends a pause; the jobs that a type's pause held back come back in batches
--
-- Arguments: name or "".
--! answers number
--! args name
--! use pauses blocked
local pause = redis.call('HGET', paused, name)
redis.call('HDEL', paused, name) -- first write: needs no memory
if name ~= '' then
    admit(pause_key(name), 500)
elseif pause then -- its jobs can run from now on, or since the pause ended by itself
    local ends = tonumber(string.match(pause, '^(%d+):')) or 0
    redis.call('HSET', paused, '', string.format('%.0f:0:', (ends == 0 or ends > now) and now or ends))
end
wake_up(wake)
wake_up(wake_alone)
return reply(1, true)
