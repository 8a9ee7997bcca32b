-- extend: renews the leases of live workers, and returns which of their jobs were asked to stop
--
-- Arguments: lease (ms), then the workers.
-- Returns for each worker that still had a lease, flat: worker; {id, or "id NUL token" for a killed attempt, …}; what it
-- holds, as lines "token=number of claims"
--! answers again
--! args lease:int
--! use record endings holdings
--! keys leases stops claims
redis.call('ZREM', leases, '') -- first write: needs no memory, so that heartbeats go on when Redis is full

-- Renewed first: a worker whose lease had ended, and whose jobs nobody has taken, is told of killed attempts by each call.
local renewed = {}
for i = FIRST, #ARGV do
    if redis.call('ZSCORE', leases, ARGV[i]) then
        redis.call('ZADD', leases, now + lease, ARGV[i])
        renewed[#renewed + 1] = ARGV[i]
    end
end

local asked = {}
if redis.call('EXISTS', stops) == 1 then
    local all = redis.call('HGETALL', stops)
    for i = 1, #all, 2 do
        local id, value = all[i], all[i + 1]
        local holder, token = killed_attempt(value)
        if not holder then
            holder = string.match(value, '^%d+:(.*)$') or ''
        elseif not is_alive(holder) then
            let_go(id, value)
        end
        asked[holder] = asked[holder] or {}
        table.insert(asked[holder], token and id .. '\0' .. token or id)
    end
end

local out = {}
for _, worker in ipairs(renewed) do
    out[#out + 1] = worker
    out[#out + 1] = asked[worker] or {}
    local text = redis.pcall('HGET', holdings, worker)
    out[#out + 1] = type(text) == 'string' and text or ''
end
return reply_again(out, #out > 0)
