-- prune: finished and old, or too many → gone
--
-- ARGV  1 clock   2 kept of succeeded, cancelled, expired   3 for how long (ms)
--       4 kept of dead   5 for how long   6 limit for each
-- Returns state, how many, flat.
--! use clock record count finish
local limit = tonumber(ARGV[6])
local out = {}

local function prune_from(state, place, most, ttl)
    local ids = redis.call('ZRANGEBYSCORE', place, '-inf', string.format('(%.0f', now - ttl), 'LIMIT', 0, limit)
    local excess = redis.call('ZCARD', place) - #ids - most
    if excess > 0 and #ids < limit then
        -- the oldest come first in both, so the rest follows the ones that are too old
        ids = redis.call('ZRANGE', place, 0, math.min(#ids + excess, limit) - 1)
    end
    if #ids > 0 then
        redis.call('ZREM', place, unpack(ids))
        for _, id in ipairs(ids) do
            unlock(id, controls_of(redis.call('HGET', jobs, id)))
        end
        forget(ids)
    end
    out[#out + 1] = state
    out[#out + 1] = #ids
    return #ids
end

local most, ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
prune_from('succeeded', succeeded, most, ttl)
prune_from('succeeded', kept, math.huge, 0) -- their score is the end of their time
prune_from('cancelled', cancelled, most, ttl)
prune_from('expired', expired, most, ttl)
local trimmed = prune_from('dead', dead, tonumber(ARGV[4]), tonumber(ARGV[5]))
if trimmed > 0 then
    count('trimmed_dead', trimmed) -- never silent
end
return out
