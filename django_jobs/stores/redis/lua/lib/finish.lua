-- → succeeded, dead, cancelled or expired: the place, the lock, and the copy for the archiver.
--! on demand
--! keys jobs succeeded kept dead cancelled expired results attempts tries archive
--! use unique remembered waiters since count notes

local PLACES = {succeeded = succeeded, dead = dead, cancelled = cancelled, expired = expired}

-- A finished job for the archiver, as netstrings: state, id, at, worker, tries, result, attempts, record.
-- `most`: so many jobs the outbox may hold.  In a full outbox this job is left out, and counted.
local function to_archive(most, state, id, record, worker)
    local fields = {
        state, id, string.format('%.0f', now), worker or '', redis.call('HGET', tries, id) or '',
        redis.call('HGET', results, id) or '', redis.call('HGET', attempts, id) or '', record or '',
    }
    for i, field in ipairs(fields) do
        fields[i] = #field .. ':' .. field
    end
    if redis.call('RPUSH', archive, table.concat(fields)) > most then
        redis.call('RPOP', archive)
        count('not_archived', 1)
    end
end

local function finish(state, id, record, controls, archiving, worker)
    redis.call('ZADD', PLACES[state], now, id)
    unlock(id, controls)
    if archiving then
        to_archive(archiving, state, id, record, worker)
    end
    tell_end(id)
    if state ~= 'succeeded' then -- `complete` notes successes, many with one note
        note_step(state, id, controls)
    end
end

-- Delete finished jobs; `ended[i]` is when they ended (ms).
local function forget(ids, state, ended)
    for _, key in ipairs({jobs, results, attempts, tries}) do
        redis.call('HDEL', key, unpack(ids))
    end
    drop_since(unpack(ids))
    remember_gone(ids, state, ended)
end
