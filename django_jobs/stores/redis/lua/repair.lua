-- repair: put right what no transition should leave.  Everything is checked again here, so that what moved
-- since it was looked at stays as it is.
--
-- ARGV  1 clock   2 kind   3 lease for a claim that has none (ms)   4 attempt (JSON) of a job that dies   5 "archive"
--       then what to look at, for each kind
--       "claims": ids   "leases": holders   "jobs": ids   "places": ids   "locks": digests   "slots": members   "waiters": members
-- Returns how many were repaired.
--! use clock places bury pauses
--! keys leases
local kind, grace, attempt, archiving = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5] == 'archive'
local repaired = 0

-- Was it anywhere?  Not, when a finished job was forgotten between the look and this call.
local function drop_everywhere(id)
    local place = leave_waiting(id) or leave_ended(id)
    return redis.call('HDEL', claims, id) == 1 or place ~= nil
end

-- Take the job out of these places, except of the first if it may stay there.
local function thin_out(places, id, stays)
    local surplus = false
    for _, place in ipairs(places) do
        if redis.call('ZSCORE', place[2], id) then
            if not stays then
                surplus = redis.call('ZREM', place[2], id) == 1
            end
            stays = false
        end
    end
    return surplus
end

local repairs = {
    -- a claim whose worker has no lease: give it one; recover takes the claim if nobody renews it
    claims = function(id)
        local claim = redis.call('HGET', claims, id)
        local holder = claim and (string.match(claim, '^[^:]*:[^:]*:(.*)$') or '')
        if holder and not redis.call('ZSCORE', leases, holder) then
            redis.call('ZADD', leases, now + grace, holder)
            return true
        end
    end,
    -- a lease that ended and holds nothing (who holds something is recovered first)
    leases = function(holder)
        local ends = tonumber(redis.call('ZSCORE', leases, holder) or '')
        local id = string.match(holder, '^remote:(.*)$')
        local claim = id and redis.call('HGET', claims, id)
        if ends and ends <= now and not (claim and string.sub(claim, -#holder) == holder) then
            redis.call('ZREM', leases, holder)
            return true
        end
    end,
    -- a job that is nowhere: queued, it was accepted; but dead if it may have run and must not run twice.  One that is
    -- in several places: it stays where running it a second time is least likely.
    jobs = function(id)
        local record = redis.call('HGET', jobs, id)
        if not record then
            return false
        end
        local running, ended, waiting = redis.call('HEXISTS', claims, id) == 1, ended_state(id), waiting_state(id)
        if not running and not ended and not waiting then
            local controls = controls_of(record)
            if controls and controls.at_most_once then
                bury(id, record, controls, attempt, archiving)
            else
                make_ready(id, controls, nil, has_crashed(redis.call('HGET', tries, id)))
            end
            return true
        end
        local surplus = thin_out(ENDED, id, not running)
        surplus = thin_out(WAITING, id, not running and not ended) or surplus
        if waiting ~= 'blocked' or running or ended then
            surplus = unblock(id) or surplus
        end
        return surplus
    end,
    -- a place or a claim without a job: nothing to run
    places = function(id)
        local waiting = redis.call('HGET', waits, id)
        if waiting and not redis.call('ZSCORE', blocked, waiting) then
            redis.call('HDEL', waits, id)
            return true
        end
        if redis.call('HEXISTS', jobs, id) == 0 then
            return drop_everywhere(id)
        end
    end,
    locks = function(digest)
        local holder, ends = lock_holder(digest)
        if holder and ends <= now and (ends > 0 or redis.call('HEXISTS', jobs, holder) == 0 or ended_state(holder)) then
            redis.call('HDEL', unique, digest)
            return true
        end
    end,
    slots = function(member)
        local id = string.match(member, '%z(.*)$')
        if not id or redis.call('HEXISTS', claims, id) == 0 then
            redis.call('ZREM', slots, member)
            return true
        end
    end,
    -- the first waiter of a key: is there room for it after all?
    waiters = function(member)
        local id, _, _, key = parts_of(member)
        if not redis.call('ZSCORE', blocked, member) then
            return false
        end
        if not id then
            redis.call('ZREM', blocked, member)
            return true
        end
        if redis.call('HGET', waits, id) ~= member then
            redis.call('HSET', waits, id, member)
        end
        if string.sub(key, 1, 1) == '\2' then
            return false -- a pause's: claims and promote take them back
        end
        local controls = controls_of(redis.call('HGET', jobs, id))
        local most = controls and tonumber(controls.limit) or 0
        local free = most > 0 and most - slots_taken(key) or 1000
        return free > 0 and admit(key, free) > 0
    end,
}

redis.call('ZREM', leases, '') -- first write: needs no memory
for i = 6, #ARGV do
    if repairs[kind](ARGV[i]) then
        repaired = repaired + 1
    end
end
return repaired
