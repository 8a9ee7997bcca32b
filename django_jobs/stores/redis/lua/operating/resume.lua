-- resume: ends a pause; the jobs that a type's pause held back come back in batches
--
-- ARGV  1 clock   2 channel   3 number   4 name or ""
--! use clock answers pauses blocked
if answered() then
    return 1
end
local pause = redis.call('HGET', paused, ARGV[4])
redis.call('HDEL', paused, ARGV[4]) -- first write: needs no memory
if ARGV[4] ~= '' then
    admit(pause_key(ARGV[4]), 500)
elseif pause then -- its jobs can run from now on, or since the pause ended by itself
    local ends, rest = string.match(pause, '^(%d+)(:.*)$')
    ends = tonumber(ends) or 0
    redis.call('HSET', paused, '', string.format('%.0f', (ends == 0 or ends > now) and now or ends) .. (rest or '::'))
end
wake_up(wake)
wake_up(wake_alone)
answer('')
return 1
