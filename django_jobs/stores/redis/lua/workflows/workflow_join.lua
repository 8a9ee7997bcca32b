-- workflow_join: jobs that are about to be enqueued belong to a batch, or do not after all
--
-- KEYS  1 the batch
-- ARGV  1 clock   2 most jobs of a batch   3 "join" | "leave"   4 queue   5 number of fields of a batch that is new
--       then these fields and values, then the ids
--
-- Returns "" if they belong to it, else why not: "gone", "done", "cancelled" or "full".
--! use clock
local flow, most, verb, queue, given = KEYS[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local kind, closed, stopped, total, live, ended = unpack(
    redis.call('HMGET', flow, 'kind', 'closed', 'stopped', 'total', 'live', 'ended')
)
total, live = tonumber(total) or 0, tonumber(live) or 0
if kind and kind ~= 'batch' then
    return 'gone'
end
local known = {}
local first = 6 + 2 * given
for i = first, #ARGV, 1000 do
    local fields = {}
    for j = i, math.min(i + 999, #ARGV) do
        fields[#fields + 1] = 's:' .. ARGV[j]
    end
    for j, value in ipairs(redis.call('HMGET', flow, unpack(fields))) do
        known[ARGV[i + j - 1]] = value
    end
end

local joined = {}
if verb == 'leave' then
    for i = first, #ARGV do
        if string.match(known[ARGV[i]] or '', '^0:live:') then
            known[ARGV[i]] = ''
            joined[#joined + 1] = 's:' .. ARGV[i]
            joined[#joined + 1] = '0:none:' .. queue
        end
    end
    if #joined > 0 then
        redis.call('HSET', flow, unpack(joined))
        redis.call('HINCRBY', flow, 'total', -#joined / 2)
        redis.call('HINCRBY', flow, 'live', -#joined / 2)
    end
    return ''
end

for i = first, #ARGV do
    if not known[ARGV[i]] or string.match(known[ARGV[i]], '^0:none:') then
        known[ARGV[i]] = '0:live'
        joined[#joined + 1] = 's:' .. ARGV[i]
        joined[#joined + 1] = '0:live:' .. queue
    end
end
if #joined == 0 and kind then
    return '' -- this call was made before
elseif not kind and given == 0 then
    return 'gone'
elseif stopped then
    return 'cancelled'
elseif closed and live == 0 then
    return 'done'
elseif total + #joined / 2 > most then
    return 'full'
end
if not kind then
    local fields = {}
    for i = 6, 5 + 2 * given do
        fields[i - 5] = ARGV[i]
    end
    redis.call('HSET', flow, unpack(fields))
end
if #joined > 0 then
    redis.call('HSET', flow, unpack(joined))
    redis.call('HINCRBY', flow, 'total', #joined / 2)
    redis.call('HINCRBY', flow, 'live', #joined / 2)
end
redis.call('HSET', flow, 'state', 'running', 'touched', string.format('%.0f', now))
if ended then
    redis.call('HDEL', flow, 'ended')
end
return ''
