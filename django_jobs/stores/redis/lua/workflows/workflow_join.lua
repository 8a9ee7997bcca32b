-- workflow_join: jobs that are about to be enqueued belong to a batch, or do not after all
--
-- KEYS  1 the batch
-- Arguments: most (jobs of a batch), verb ("join" | "leave"), queue, given (number of fields of a batch that is new),
--       then these fields and values, then the ids
--
-- Returns "" if they belong to it, else why not: "gone", "done", "cancelled" or "full".
--! answers text
--! args most:int verb queue given:int
local flow = KEYS[1]
answers_kept = OF_WORKFLOW
local kind, closed, stopped, total, live, ended = unpack(
    redis.call('HMGET', flow, 'kind', 'closed', 'stopped', 'total', 'live', 'ended')
)
total, live = tonumber(total) or 0, tonumber(live) or 0
if kind and kind ~= 'batch' then
    return reply('gone')
end

-- Add to the number of jobs of the batch.  HINCRBY would fail on a damaged number after half of the writes.
local function count(by)
    local function text(number)
        return string.format('%.0f', math.max(0, number + by))
    end
    redis.call('HSET', flow, 'total', text(total), 'live', text(live))
end

local known, moved = {}, {}
local first = FIRST + 2 * given
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
        count(-#joined / 2)
    end
    return reply('', #joined > 0)
end

for i = first, #ARGV do
    if not known[ARGV[i]] or string.match(known[ARGV[i]], '^0:none:') then
        known[ARGV[i]] = '0:live'
        joined[#joined + 1] = 's:' .. ARGV[i]
        joined[#joined + 1] = '0:live:' .. queue
    elseif string.match(known[ARGV[i]], '^0:live:') and known[ARGV[i]] ~= '0:live:' .. queue then
        moved[#moved + 1] = 's:' .. ARGV[i] -- its id was reserved for another queue, where no job came of it
        moved[#moved + 1] = '0:live:' .. queue
    end
end
if #moved > 0 then
    redis.call('HSET', flow, unpack(moved))
end
if #joined == 0 and kind then
    return reply('', #moved > 0) -- this call was made before
elseif not kind and given == 0 then
    return reply('gone')
elseif stopped then
    return reply('cancelled')
elseif closed and live == 0 then
    return reply('done')
elseif total + #joined / 2 > most then
    return reply('full')
end
if not kind then
    local fields = {}
    for i = FIRST, first - 1 do
        fields[i - FIRST + 1] = ARGV[i]
    end
    redis.call('HSET', flow, unpack(fields))
end
if #joined > 0 then
    redis.call('HSET', flow, unpack(joined))
    count(#joined / 2)
end
redis.call('HSET', flow, 'state', 'running', 'touched', string.format('%.0f', now))
if ended then
    redis.call('HDEL', flow, 'ended')
end
return reply('', true)
