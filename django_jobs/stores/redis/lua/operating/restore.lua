-- restore: puts a finished job back where it was
--
-- Arguments: id, record, state.
-- Returns 1, or 0 if the id exists.
--! answers number
--! args id record state
--! use places notes
local PLACE = {succeeded = succeeded, dead = dead, cancelled = cancelled, expired = expired}
local place = PLACE[state]
redis.call('ZCARD', place) -- an error here, before the first write, leaves no record without a place
if redis.call('HSETNX', jobs, id, record) == 0 then
    return reply(0)
end
redis.call('ZADD', place, now, id)
if place == dead then
    failed.enter('dead', id, now, record)
end
note_step(state, id, controls_of(record))
return reply(1, true)
