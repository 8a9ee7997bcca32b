-- extend: renew the leases of live workers, and tell which of their jobs were asked to stop
--
-- ARGV  1 clock   2 lease (ms)   then the workers
-- Returns {worker, {id, …}} for each that still had a lease, flat.
--! use clock
--! keys leases stops claims
local lease = tonumber(ARGV[2])
redis.call('ZREM', leases, '') -- first write: needs no memory, so that heartbeats go on when Redis is full

local asked = {}
if redis.call('EXISTS', stops) == 1 then
    local all = redis.call('HGETALL', stops)
    for i = 1, #all, 2 do
        local id, holder = all[i], string.match(all[i + 1], '^%d+:(.*)$') or ''
        asked[holder] = asked[holder] or {}
        table.insert(asked[holder], id)
        local since = tonumber(string.match(all[i + 1], '^%d+')) or 0
        if since + 2 * lease <= now and redis.call('HEXISTS', claims, id) == 0 then -- killed, and told often enough
            redis.call('HDEL', stops, id)
        end
    end
end

local out = {}
for i = 3, #ARGV do
    local worker = ARGV[i]
    if redis.call('ZSCORE', leases, worker) then
        redis.call('ZADD', leases, now + lease, worker)
        out[#out + 1] = worker
        out[#out + 1] = asked[worker] or {}
    end
end
return out
