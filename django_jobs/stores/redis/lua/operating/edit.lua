-- edit: a waiting job gets another record, in the place where it waits
--
-- Arguments: id, was (the record as it was), record (the new one).
-- Returns a word, as values.Edited.
--! answers text
--! args id was record
--! use record edited locker log
--! keys attempts
local stored = redis.call('HGET', jobs, id)
if not stored then
    return reply('gone')
end
if stored == record then -- this call was repeated
    return reply('edited')
end
local state = redis.call('HEXISTS', claims, id) == 0 and waiting_state(id)
if not state or is_too_late(id, controls_of(stored)) then
    return reply('moved')
end
if stored ~= was then
    return reply('changed')
end
local before, after = controls_of(stored), controls_of(record)
local old, new = digest_of(before), digest_of(after)
local holder = new and new ~= old and locker(new)
if holder and holder ~= id then
    return reply('duplicate')
end
redis.call('HSET', jobs, id, record) -- first write: refused when Redis is full
local HEAD = '^[^\n]*\n([^\n]*\n[^\n]*)' -- name and options, which have the tags
if state == 'retry' and string.match(stored, HEAD) ~= string.match(record, HEAD) then
    local seen = string.match(last_line(redis.call('HGET', attempts, id)) or '', '^{"at":(%d+)')
    failed.tag('retry', id, redis.call('ZSCORE', retry, id), record, tonumber(seen) or now)
end

move_lock(id, before, after)
limit_follows(id, state, before, after)
return reply('edited', true)
