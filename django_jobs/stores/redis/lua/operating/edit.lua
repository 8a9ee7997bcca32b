-- edit: a waiting job gets another record, in the place where it waits
--
-- ARGV  1 clock   2 id   3 record as it was   4 new record
-- Returns a word, as values.Edited.
--! use clock record edited locker lastline
--! keys attempts
local id, was, record = ARGV[2], ARGV[3], ARGV[4]
local stored = redis.call('HGET', jobs, id)
if not stored then
    return 'gone'
end
if stored == record then -- this call was repeated
    return 'edited'
end
local state = redis.call('HEXISTS', claims, id) == 0 and waiting_state(id)
if not state then
    return 'moved'
end
if stored ~= was then
    return 'changed'
end
local before, after = controls_of(stored), controls_of(record)
local old, new = digest_of(before), digest_of(after)
local holder = new and new ~= old and locker(new)
if holder and holder ~= id then
    return 'duplicate'
end
redis.call('HSET', jobs, id, record) -- first write: refused when Redis is full
local HEAD = '^[^\n]*\n([^\n]*\n[^\n]*)' -- name and options, which have the tags
if state == 'retry' and string.match(stored, HEAD) ~= string.match(record, HEAD) then
    local seen = string.match(last_line(redis.call('HGET', attempts, id)) or '', '^{"at":(%d+)')
    failed.tag('retry', id, redis.call('ZSCORE', retry, id), record, tonumber(seen) or now)
end

if new ~= old then
    local owner, ends = nil, 0
    if old then
        owner, ends = lock_holder(old)
        unlock_for_good(id, before)
    end
    if new and owner == id and ends > now then -- the rest of the period
        redis.call('HSET', unique, new, string.format('%.0f:', ends) .. id)
    elseif new then
        relock(id, after)
    end
end

limit_follows(id, state, before, after)
return 'edited'
