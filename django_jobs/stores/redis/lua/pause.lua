-- pause: close the queue ("") or a job type
--
-- ARGV  1 clock   2 name or ""   3 until (ms, 0 = until resumed)   4 reason
--! use clock
--! keys paused
redis.call('HDEL', paused, ARGV[2]) -- first write: needs no memory
redis.call('HSET', paused, ARGV[2], string.format('%.0f:%.0f:', tonumber(ARGV[3]), now) .. ARGV[4])
return 1
