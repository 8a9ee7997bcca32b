-- resume: open it again; what a type's pause held back comes back in batches
--
-- ARGV  1 clock   2 channel   3 number   4 name or ""
--! use clock answers pauses blocked
if answered() then
    return 1
end
redis.call('HDEL', paused, ARGV[4])
if ARGV[4] ~= '' then
    admit(pause_key(ARGV[4]), 500)
end
wake_up(wake)
wake_up(wake_alone)
answer('')
return 1
