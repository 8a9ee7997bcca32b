-- cancel: waiting → cancelled; a running job is asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 most jobs in the backlog, or ""   then the ids
-- Returns id, state after the call, flat; unknown ids are left out.
--! answers lines
--! use record places finish
--! keys stops
redis.call('HDEL', stops, '') -- first write: needs no memory, so that jobs can be stopped when Redis is full
local archiving = tonumber(ARGV[4])
local out, ended, changed = {}, {}, false
for i = 5, #ARGV do
    local id = ARGV[i]
    local state
    local claim = redis.call('HGET', claims, id)
    if claim then
        local holder = string.match(claim, '^[^:]*:[^:]*:(.*)$') or ''
        redis.call('HSET', stops, id, string.format('%.0f:', now) .. holder)
        state, changed = 'running', true
    elseif leave_waiting(id) then
        local record = redis.call('HGET', jobs, id)
        ended[#ended + 1] = {id = id, record = record, controls = controls_of(record)}
        state, changed = 'cancelled', true
    else
        state = ended_state(id)
    end
    if state then
        out[#out + 1] = id
        out[#out + 1] = state
    end
end
end_all('cancelled', ended, archiving)
return reply(out, changed)
