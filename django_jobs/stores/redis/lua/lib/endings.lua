-- Attempts that were killed and whose process may still be running them.  Until the process has ended the attempt, or
-- its lease has expired, the attempt keeps its slot, and the job waits if it is to run again.
--
-- `stops` maps id → "ms:holder" for a running job that was asked to stop, "ms:holder NUL token NUL limit key" for a
-- killed attempt.
--! on demand
--! keys jobs leases slots stops
--! use blocked

-- The holder and the token of a killed attempt; nil for any other value.
local function killed_attempt(value)
    return string.match(value or '', '^%d+:(%Z*)%z(%d+)%z')
end

local function is_alive(holder)
    local ends = redis.call('ZSCORE', leases, holder)
    return ends and tonumber(ends) > now
end

-- The key in `blocked` for a job that waits for the end of its own last attempt; no limit key starts like this.
local function ending_key(id)
    return '\3' .. id
end

-- The killed attempt has ended.  The first write is HDEL, which needs no memory.
local function let_go(id, value)
    redis.call('HDEL', stops, id)
    local holder, _, key = string.match(value, '^%d+:(%Z*)%z(%d+)%z(.*)$')
    if string.sub(holder, -#id - 1) == ':' .. id then -- a holder of this job only
        redis.call('ZREM', leases, holder)
    end
    if key ~= '' then
        redis.call('ZREM', slots, key .. '\0' .. id)
        admit(key, 1)
    end
    admit(ending_key(id), 1)
end

-- May the job's last attempt, which was killed, still be running?  If it cannot be, what it held is freed.
local function is_ending(id)
    local value = redis.call('HGET', stops, id)
    local holder = killed_attempt(value)
    if holder and is_alive(holder) then
        return true
    elseif holder then
        let_go(id, value)
    end
    return false
end

-- An attempt ended whose claim is no longer held.  If it was killed, free what it held.
local function attempt_is_over(id, token)
    local value = redis.call('HGET', stops, id)
    local _, killed = killed_attempt(value)
    if killed and killed == string.match(token, '^%d+') then
        let_go(id, value)
    end
end

-- These holders have ended (a table: holder → true).
local function holders_are_gone(holders)
    if redis.call('EXISTS', stops) == 0 then
        return
    end
    local all = redis.call('HGETALL', stops)
    for i = 1, #all, 2 do
        local holder = killed_attempt(all[i + 1])
        if holder and holders[holder] then
            let_go(all[i], all[i + 1])
        end
    end
end
