-- What an attempt holds, and how that is freed: when the attempt ends, however it does.
--
-- Attempts that were killed and whose process may still be running them.  Until the process has ended the attempt, or
-- has lost its lease, the attempt keeps its slot, its lock and its place in the queue's limit; the job waits if it is to
-- run again; and its workflow is not told of the end.  A lease is lost when maintenance removes it: the server's clock
-- alone does not tell that it is over, because the clock may have been set forward.
--
-- `stops` maps id → "ms:holder" for a running job that was asked to stop, "ms:holder NUL token NUL limit key NUL digest
-- of the lock" for a killed attempt.
--! on demand
--! keys jobs claims leases slots stops checkins
--! use record ready blocked unique ended notes holdings

-- Frees the slots of jobs that ended, and lets in as many.  `members` of `slots`; `freed`: limit key → how many.
local function free_slots(members, freed)
    if #members > 0 then
        redis.call('ZREM', slots, unpack(members))
        if redis.call('EXISTS', blocked) == 1 then
            for key, n in pairs(freed) do
                admit(key, n)
            end
        end
    end
end

-- Take the claims of these jobs away, with all that their attempts hold; each job has `id`, `claim` and `controls`, and
-- gets `holder`.  The rest as for take_claims.
local function end_claims(list, reported)
    local ids, ended, own, members, freed = {}, {}, {}, {}, {}
    for i, job in ipairs(list) do
        local id, claim, key = job.id, job.claim, limit_key(job.controls)
        ids[i] = id
        job.holder = string.match(claim, '^[^:]*:[^:]*:(.*)$') or ''
        if string.sub(job.holder, -#id - 1) == ':' .. id then -- a holder of this job only
            own[#own + 1] = job.holder
        else
            ended[claim] = (ended[claim] or 0) + 1
        end
        if key then
            members[#members + 1] = key .. '\0' .. id
            freed[key] = (freed[key] or 0) + 1
        end
    end
    local stopped = take_claims(ids, ended, reported)
    if #own > 0 then
        redis.call('ZREM', leases, unpack(own))
    end
    free_slots(members, freed)
    return stopped
end

-- Take one claim away.  Returns whether the job was asked to stop, and its holder.
local function end_claim(id, claim, controls)
    local job = {id = id, claim = claim, controls = controls}
    local stopped = end_claims({job}, true) == 1
    tell_of_room()
    return stopped, job.holder
end

-- The holder and the token of a killed attempt; nil for any other value.
local function killed_attempt(value)
    return string.match(value or '', '^%d+:(%Z*)%z(%d+)%z')
end

local function is_alive(holder)
    return redis.call('ZSCORE', leases, holder) and true or false
end

-- The key in `blocked` for a job that waits for the end of its own last attempt; no limit key starts like this.
local function ending_key(id)
    return '\3' .. id
end

-- The attempt was killed, and its holder lives: only the claim goes.  The first write is HDEL, which needs no memory.
local function keep_until_it_ends(id, claim, controls)
    local token, holder = string.match(claim, '^(%d+):[^:]*:(.*)$')
    redis.call('HDEL', claims, id)
    note_end(id, claim)
    redis.call('HDEL', checkins, id)
    local digest = lock_to_free(controls)
    digest = digest and lock_holder(digest) == id and digest or ''
    local asked = string.format('%.0f:', now) .. holder
    redis.call('HSET', stops, id, table.concat({asked, token, limit_key(controls) or '', digest}, '\0'))
end

-- The killed attempt has ended.  The first write is HDEL, which needs no memory; the last one removes the entry, so that a
-- call that fails here is made again.
local function let_go(id, value)
    redis.call('HDEL', stops, '')
    local holder, key, digest = string.match(value, '^%d+:(%Z*)%z%d+%z(%Z*)%z?(%Z*)')
    if string.sub(holder, -#id - 1) == ':' .. id then -- a holder of this job only
        redis.call('ZREM', leases, holder)
    end
    if key ~= '' then
        free_slots({key .. '\0' .. id}, {[key] = 1})
    end
    local state, controls = ended_state(id), controls_of(redis.call('HGET', jobs, id))
    if (state or digest_of(controls) ~= digest) and digest ~= '' and lock_holder(digest) == id then
        redis.call('HDEL', unique, digest)
    end
    admit(ending_key(id), 1)
    if state then
        note_step(state, id, controls)
    end
    redis.call('HDEL', stops, id)
    tell_of_room()
end

-- May the job's last attempt, which was killed, still be running?  Returns, too, the attempt's value in `stops`.
local function may_be_running(id)
    local value = redis.call('HGET', stops, id)
    local holder = killed_attempt(value)
    return holder and is_alive(holder) or false, holder and value
end

-- The same; if it cannot be, what it held is freed.
local function is_ending(id)
    local alive, value = may_be_running(id)
    if value and not alive then
        let_go(id, value)
    end
    return alive
end

-- The job waits for the end of its killed attempt, if that has not ended.  Returns whether it waits.
local function wait_for_end(id, controls, crashed)
    if not is_ending(id) then
        return false
    end
    block(ending_key(id), id, base_score(controls) + next_number(1), (crashed or is_alone(controls)) and 'a' or 's')
    return true
end

-- Has the job's killed attempt this lock?
local function ends_with(id, digest)
    local alive, value = may_be_running(id)
    return alive and digest and string.match(value, '%z(%Z*)$') == digest
end

-- An attempt ended whose claim is no longer held.  If it was killed, free what it held.  Token 0: whichever was killed.
local function attempt_is_over(id, token)
    local value = redis.call('HGET', stops, id)
    local _, killed = killed_attempt(value)
    local number = string.match(token, '^%d+')
    if killed and (killed == number or number == '0') then
        let_go(id, value)
    end
end

-- How many killed attempts may still be running.  Those that cannot be are let go; and those of `gone`, holders that have
-- ended (a table: holder → true).
local function still_ending(gone)
    local n = 0
    if redis.call('EXISTS', stops) == 0 then
        return n
    end
    local all = redis.call('HGETALL', stops)
    for i = 1, #all, 2 do
        local holder = killed_attempt(all[i + 1])
        if holder and (not is_alive(holder) or (gone and gone[holder])) then
            let_go(all[i], all[i + 1])
        elseif holder then
            n = n + 1
        end
    end
    return n
end
