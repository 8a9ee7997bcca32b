-- pause: pauses the queue ("") or a job type
--
-- ARGV  1 clock   2 channel   3 number   4 name or ""   5 until (ms, 0 = until resumed)   6 reason
--! use clock answers
--! keys paused
if answered() then
    return 1
end
redis.call('HDEL', paused, ARGV[4]) -- first write: needs no memory
redis.call('HSET', paused, ARGV[4], string.format('%.0f:%.0f:', tonumber(ARGV[5]), now) .. ARGV[6])
answer('')
return 1
