-- upkeep: what maintenance has to do in these queues.  Reads only; a queue without keys costs one command.
--
-- KEYS  the keys below of each queue   ARGV  1 clock   2 how many succeeded, cancelled and expired jobs are kept
--       3 for how long (ms)   4 how many dead jobs are kept   5 for how long (ms)   6 ids are remembered for (ms)
--       then the type that each key should have, in the order of the keys below
-- Returns for each queue, flat: 1 if there is something to prune, otherwise 0; the sizes of its keys ("" = it has none),
-- "?" if jobs wait or run, or a key has another type: then check it in any case; 1 if no sample was taken in these five
-- minutes, otherwise 0
--! use clock
--! keys unknown offer offer_alone
--! keys jobs queued alone since scheduled retry claims leases blocked waits slots succeeded kept dead cancelled expired
--! keys tries attempts results checkins stops unique fired remembered remembered_at returned returned_before result_at trimmed_to paused
--! keys recent recent_before answers totals minutes seq wake wake_alone archive archiver holdings waiters ends notes
--! keys failures grouped error_groups tag_groups expiries samples
local FIRST, STRIDE, FINE = 7, #ARGV - 6, 300000 -- as in samples/log.py
local SIZE = {hash = 'HLEN', zset = 'ZCARD', list = 'LLEN', stream = 'XLEN', string = 'STRLEN'}
local most, ttl, dead_most, dead_ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ids_ttl = tonumber(ARGV[6])

-- Is the first member of the zset older than that, or does it have more members than that?
local function prunable(key, size, kept, age)
    if size == 0 then
        return false
    end
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    return size > kept or tonumber(head[2]) < now - age
end

-- The sizes by key; nil if a key has another type.
local function sizes_of(first)
    local sizes = {}
    for i = 0, STRIDE - 1 do
        local key, expected = KEYS[first + i], ARGV[FIRST + i]
        local kind = redis.call('TYPE', key).ok
        if kind == 'none' then
            sizes[i + 1] = 0
        elseif kind ~= expected then
            return nil
        else
            sizes[i + 1] = redis.call(SIZE[kind], key)
        end
    end
    return sizes
end

local out = {}
for first = 1, #KEYS, STRIDE do
    local prune, text, sample = false, '', false
    if redis.call('EXISTS', unpack(KEYS, first, first + STRIDE - 1)) > 0 then
        local sizes, size = sizes_of(first), {}
        if not sizes then
            prune, text = true, '?'
        else
            for i, each in ipairs(sizes) do
                size[KEYS[first + i - 1]] = each
            end
            queued = KEYS[first + 4]
            alone = KEYS[first + 5]
            claims = KEYS[first + 9]
            blocked = KEYS[first + 11]
            slots = KEYS[first + 13]
            succeeded = KEYS[first + 14]
            kept = KEYS[first + 15]
            dead = KEYS[first + 16]
            cancelled = KEYS[first + 17]
            expired = KEYS[first + 18]
            stops = KEYS[first + 23]
            remembered_at = KEYS[first + 27]
            seq = KEYS[first + 38]
            local taken = tonumber(redis.call('HGET', KEYS[first + STRIDE - 1], 'taken') or nil) or 0
            sample = math.floor(taken / FINE) ~= math.floor(now / FINE)
            prune = prunable(succeeded, size[succeeded], most, ttl)
                or prunable(kept, size[kept], math.huge, 0)
                or prunable(cancelled, size[cancelled], most, ttl)
                or prunable(expired, size[expired], most, ttl)
                or prunable(dead, size[dead], dead_most, dead_ttl)
                or prunable(remembered_at, size[remembered_at], math.huge, ids_ttl)
            text = table.concat(sizes, ' ') .. ' ' .. (redis.call('GET', seq) or '')
            if size[queued] + size[alone] + size[blocked] + size[claims] + size[slots] + size[stops] > 0 then
                text = '?'
            end
        end
    end
    out[#out + 1] = prune and 1 or 0
    out[#out + 1] = text
    out[#out + 1] = sample and 1 or 0
end
return out
