-- Since when a job can run, if that is not the time in its record: since it was due, let in, revived or handed back.
-- `since` maps id → ms; once the job has left its lane, the value is negative, until the job is deleted.  Nothing is
-- decided by it, so an error here (the key has another type) must not lose a job.
--! keys since
local anything_noted = false

-- `entries`: ms and id of each job, flat.
local function note_since(entries)
    redis.pcall('ZADD', since, unpack(entries))
    anything_noted = true
end

-- These jobs left their lane and have not run.
local function drop_since(...)
    redis.pcall('ZREM', since, ...)
end

-- Since when these jobs could run, as `since` has it, with its sign; {} if it has none of them.
local function since_of(ids)
    local found = redis.pcall('ZMSCORE', since, unpack(ids))
    for i = 1, #ids do
        if found[i] then
            return found
        end
    end
    return {}
end

-- The same for jobs that start now; not before `opened` (ms), when the queue's last pause ended.
local function end_waits(ids, opened)
    if not anything_noted and opened == 0 then
        return {}
    end
    local found, waited = since_of(ids), {}
    for i, id in ipairs(ids) do
        local at = math.max(math.abs(tonumber(found[i] or 0)), opened)
        if at > 0 then
            found[i] = string.format('%.0f', -at)
            waited[#waited + 1] = found[i]
            waited[#waited + 1] = id
        end
    end
    if #waited > 0 then
        note_since(waited)
    end
    return #waited > 0 and found or {}
end
