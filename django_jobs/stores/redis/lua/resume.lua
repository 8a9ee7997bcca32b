-- resume: open it again; what a type's pause held back comes back in batches
--
-- ARGV  1 clock   2 name or ""
--! use clock pauses blocked
redis.call('HDEL', paused, ARGV[2])
if ARGV[2] ~= '' then
    admit(pause_key(ARGV[2]), 500)
end
wake_up(wake)
wake_up(wake_alone)
return 1
