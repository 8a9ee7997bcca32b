-- restore: a finished job back to where it was
--
-- ARGV  1 clock   2 id   3 record   4 state
-- Returns 1, or 0 if the id exists (unless it is there just like this: the call was sent again).
--! use clock places
local PLACE = {succeeded = succeeded, dead = dead, cancelled = cancelled, expired = expired}
if redis.call('HSETNX', jobs, ARGV[2], ARGV[3]) == 0 then
    local same = redis.call('HGET', jobs, ARGV[2]) == ARGV[3] and redis.call('ZSCORE', PLACE[ARGV[4]], ARGV[2])
    return same and 1 or 0
end
redis.call('ZADD', PLACE[ARGV[4]], now, ARGV[2])
return 1
