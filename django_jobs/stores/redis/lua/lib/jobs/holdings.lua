-- What each worker process holds, so that each heartbeat can report it without a walk over all claims: `holdings` maps
-- holder → lines "token=number of claims".  Nothing relies on it: if it differs from what the worker knows,
-- holdings.lua counts again.  Therefore an error here (the key has another type) must not lose a job.
--! keys holdings claims checkins stops
local function note_holding(holder, token, change)
    local text = redis.pcall('HGET', holdings, holder)
    if type(text) == 'table' or (not text and change < 0) then
        return
    end
    text = text or '\n'
    local from, to, n = string.find(text, '\n' .. token .. '=(%d+)\n')
    local rest = from and string.sub(text, 1, from) .. string.sub(text, to + 1) or text
    local left = (tonumber(n) or 0) + change
    if left > 0 then
        redis.pcall('HSET', holdings, holder, rest .. token .. '=' .. string.format('%d', left) .. '\n')
    elseif #rest > 1 then
        redis.pcall('HSET', holdings, holder, rest)
    else
        redis.pcall('HDEL', holdings, holder)
    end
end

-- `ended`: claim → how many of its jobs ended.
local function note_ends(ended)
    for claim, n in pairs(ended) do
        local token, holder = string.match(claim, '^(%d+):[^:]*:(.*)$')
        if token then
            note_holding(holder, token, -n)
        end
    end
end

-- Holders of one job only have no heartbeat, and are not counted.
local function note_end(id, claim)
    local token, holder = string.match(claim, '^(%d+):[^:]*:(.*)$')
    if token and string.sub(holder, -#id - 1) ~= ':' .. id then
        note_holding(holder, token, -1)
    end
end

-- Take the claims of these jobs away.  `ended`: claim → how many of its jobs; `reported`: is there a check-in, or was a job
-- asked to stop?  The first write is HDEL, which needs no memory, so that all this works when Redis is full.  After it, a
-- key of another type must not keep the jobs from ending.  Returns how many of the jobs were asked to stop.
local function take_claims(ids, ended, reported)
    redis.call('HDEL', claims, unpack(ids))
    note_ends(ended)
    if reported then
        redis.pcall('HDEL', checkins, unpack(ids))
        return redis.pcall('HDEL', stops, unpack(ids))
    end
    return 0
end
