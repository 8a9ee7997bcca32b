-- watch: notes that the ends of these jobs are waited for
--
-- Arguments: the ids.
-- Returns the last entry of `ends` (reports on these jobs come after it), then the ids that have ended
-- or are not in the store.
--! answers again
--! args
--! use places
--! keys waiters ends
local ids = {unpack(ARGV, FIRST)}
local last = redis.pcall('XREVRANGE', ends, '+', '-', 'COUNT', 1)
local found = {last[1] and last[1][1] or '0-0'}

local over, waited = {}, {}
for _, place in ipairs(ENDED) do
    for i, at in ipairs(redis.call('ZMSCORE', place[2], unpack(ids))) do
        over[i] = over[i] or at
    end
end
for i, id in ipairs(ids) do
    if over[i] or redis.call('HEXISTS', jobs, id) == 0 then
        found[#found + 1] = id
    else
        waited[#waited + 1] = id
        waited[#waited + 1] = '1'
    end
end
if #waited > 0 then
    redis.call('HSET', waiters, unpack(waited))
end
return reply_again(found, #waited > 0)
