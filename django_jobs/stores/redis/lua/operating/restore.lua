-- restore: puts a finished job back where it was
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 record   6 state
-- Returns 1, or 0 if the id exists.
--! use clock answers places notes
local PLACE = {succeeded = succeeded, dead = dead, cancelled = cancelled, expired = expired}
local id, record, place = ARGV[4], ARGV[5], PLACE[ARGV[6]]
local before = answered()
if before then
    return tonumber(before)
end
redis.call('ZCARD', place) -- an error here, before the first write, leaves no record without a place
if redis.call('HSETNX', jobs, id, record) == 0 then
    answer_in_doubt('0')
    return 0
end
redis.call('ZADD', place, now, id)
if place == dead then
    failed.enter('dead', id, now, record)
end
note_step(ARGV[6], id, controls_of(record))
answer('1')
return 1
