-- kill: waiting or running → dead, by a person
--
-- ARGV  1 clock   2 channel   3 number   4 attempt (JSON, without number and worker), newline, signature
--       5 most jobs in the outbox, or ""   then the ids
-- Returns the ids that moved.
--! use clock answers lines places claim_end bury
local attempt, signature = parts_of_attempt(ARGV[4])
local archiving = tonumber(ARGV[5])
local before = answered()
if before then
    return lines_of(before)
end

-- The worker process does not know of the kill yet, and may run the job until it does: only the claim goes, the slot
-- stays.  Returns the holder; nil if the holder is gone already.
local function keep_slot(id, claim, controls)
    local token, holder = string.match(claim, '^(%d+):[^:]*:(.*)$')
    if not holder or not is_alive(holder) then
        return nil
    end
    redis.call('HDEL', claims, id) -- first write: needs no memory
    note_end(id, claim)
    redis.call('HDEL', checkins, id)
    local value = table.concat({string.format('%.0f:', now) .. holder, token, limit_key(controls) or ''}, '\0')
    redis.call('HSET', stops, id, value)
    tell_of_room()
    return holder
end

local moved = {}
for i = 6, #ARGV do
    local id = ARGV[i]
    local claim = redis.call('HGET', claims, id)
    if claim or leave_waiting(id) then
        local record = redis.call('HGET', jobs, id)
        local controls = controls_of(record)
        local holder = ''
        if claim then
            local _
            holder = keep_slot(id, claim, controls)
            if not holder then
                _, holder = end_claim(id, claim, controls)
            end
        end
        local failures, crashes = get_tries(id)
        local number = claim and failures + crashes + 1 or 0
        bury(id, record, controls, line_of(attempt, number, holder), signature, archiving, holder)
        moved[#moved + 1] = id
    end
end
answer_ids(moved)
return moved
