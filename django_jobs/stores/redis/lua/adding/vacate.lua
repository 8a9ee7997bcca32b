-- vacate: ids that this queue does not know cannot be enqueued here ("leave"), or can be again ("return")
--
-- Arguments: verb, kept (ids are remembered for, ms), then for each id: the id, and the number of its reservation.
--
-- Such an id is remembered as "moved:number".  "return" lifts this for a later reservation only: another process may be
-- about to take the id to another queue, and has made this entry for the reservation that it has seen.
--
-- Returns one word per id: "known" if the id has a job here, or had one and is remembered; otherwise "free".
--! answers lines
--! args verb kept:int
--! use remembered
--! keys jobs
local out, changed = {}, false
for i = FIRST, #ARGV, 2 do
    local id, number = ARGV[i], tonumber(ARGV[i + 1])
    local known = redis.call('HEXISTS', jobs, id) == 1
    local value = is_remembered(id, kept)
    local moved = tonumber(string.match(value or '', '^moved:(%d+)$') or nil)
    known = known or (value and not moved)
    if not known and verb == 'leave' then
        changed = true
        refuse(id, string.format('moved:%.0f', math.max(number, moved or 0)), kept)
    elseif not known and moved and moved < number then
        changed = true
        redis.call('ZADD', remembered_at, 0, id) -- its time is over; a user that may only add has no HDEL
    end
    out[#out + 1] = known and 'known' or 'free'
end
return reply(out, changed)
