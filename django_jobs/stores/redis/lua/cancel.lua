-- cancel: waiting → cancelled; a running job is asked to stop
--
-- ARGV  1 clock   2 "archive"   then the ids
-- Returns id, state afterwards, flat; unknown ids are left out.
--! use clock record places count finish
--! keys stops
redis.call('HDEL', stops, '') -- first write: needs no memory, so that jobs can be stopped when Redis is full
local archiving = ARGV[2] == 'archive'
local out = {}
for i = 3, #ARGV do
    local id = ARGV[i]
    local state
    local claim = redis.call('HGET', claims, id)
    if claim then
        local holder = string.match(claim, '^[^:]*:[^:]*:(.*)$') or ''
        redis.call('HSET', stops, id, string.format('%.0f:', now) .. holder)
        state = 'running'
    elseif leave_waiting(id) then
        local record = redis.call('HGET', jobs, id)
        finish('cancelled', id, record, controls_of(record), archiving)
        count('cancelled', 1)
        state = 'cancelled'
    else
        state = ended_state(id)
    end
    if state then
        out[#out + 1] = id
        out[#out + 1] = state
    end
end
return out
