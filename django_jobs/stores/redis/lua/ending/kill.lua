-- kill: waiting or running → dead or cancelled, by a person
--
-- ARGV  1 clock   2 channel   3 number   4 state after it   5 attempt (JSON, without number and worker), newline,
--       signature   6 most jobs in the backlog, or ""   then the ids
-- Returns the ids that moved.
--! answers lines
--! use places claim_end finish log
local attempt, signature = parts_of_attempt(ARGV[5])
local archiving = tonumber(ARGV[6])

local moved, ended = {}, {}
for i = 7, #ARGV do
    local id = ARGV[i]
    local claim = redis.call('HGET', claims, id)
    if claim or leave_waiting(id) then
        local record = redis.call('HGET', jobs, id)
        local controls = controls_of(record)
        local holder = claim and string.match(claim, '^%d+:[^:]*:(.*)$') or '' -- '': unreadable
        if claim and holder ~= '' and is_alive(holder) then
            keep_until_it_ends(id, claim, controls) -- its process does not know of the kill yet
        elseif claim then
            end_claim(id, claim, controls)
        end
        local number = claim and number_of(get_tries(id)) or 0
        log_attempt(id, line_of(attempt, number, holder))
        ended[#ended + 1] = {id = id, record = record, controls = controls, holder = holder, signature = signature}
        moved[#moved + 1] = id
    end
end
end_all(ARGV[4], ended, archiving)
return reply_ids(moved)
