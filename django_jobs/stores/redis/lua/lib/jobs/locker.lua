-- Which job holds a unique key and is still covered by it.
--! keys jobs claims
--! use record ready ended unique endings log

local function covered(holder, ends)
    if ends > now then
        return true
    end
    local record = ends == 0 and redis.call('HGET', jobs, holder)
    if not record or ended_state(holder) then
        return ends == 0 and may_be_running(holder)
    end
    return not is_too_late(holder, controls_of(record)) or redis.call('HEXISTS', claims, holder) == 1
end

-- The job that holds the key and is covered by it.
local function locker(digest)
    local holder, ends = lock_holder(digest)
    return holder and covered(holder, ends) and holder
end

-- The job waits or runs again: take the lock, unless a job is covered by it.
local function relock(id, controls)
    if digest_of(controls) and controls.unique_mode ~= 'period' then
        local holder, ends = lock_holder(controls.unique)
        if not (holder and ((holder == id and ends == 0) or covered(holder, ends))) then
            lock(id, controls)
        end
    end
end

-- The job, which waits, has other controls: its lock moves to the new key, with the rest of its period, unless a job is
-- covered by that.
local function move_lock(id, before, after)
    local old, new = digest_of(before), digest_of(after)
    if new == old then
        return
    end
    local owner, ends = nil, 0
    if old then
        owner, ends = lock_holder(old)
        if not ends_with(id, old) then
            unlock_for_good(id, before)
        end
    end
    if new and owner == id and ends > now then
        if (locker(new) or id) == id then
            redis.call('HSET', unique, new, string.format('%.0f:', ends) .. id)
        end
    elseif new then
        relock(id, after)
    end
end

-- The job, which was claimed, waits again: it takes its lock again if that is free, and can expire if it has not begun.
local function waits_again(id, controls)
    relock(id, controls)
    note_expiry(id, controls)
end

-- The same, to run now; see make_ready.
local function wait_again(id, controls, number, crashed)
    make_ready(id, controls, number, crashed, now)
    waits_again(id, controls)
end
