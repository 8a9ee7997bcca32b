-- arrive: → retry, for a job that has left another queue to be retried in this one, with all that was known of it
--
-- Arguments: kept (ids are remembered for, ms), latest (ms; a later call has no effect), number (of the move, see
--       leave_for); id, due (ms), tries, log, record, signature of the error, digest with which the id is remembered,
--       locked (until when it has its unique key for a period, ms), last (number of the queue that it has left).
--
-- Returns "here" if the job is or was here, "gone" if it has left for another queue since, "late".  Each call for the same
-- move but the first changes nothing: this queue has the job, or remembers it for longer than until `latest`.
--! answers text
--! args kept:int latest:int number:int id due tried log record signature digest locked:int last:int
--! use record remembered log locker failed wake meet finish
--! keys jobs retry tries attempts stops seq
for _, each in ipairs({
    {'ZCARD', retry}, {'HLEN', tries}, {'HLEN', attempts}, {'ZCARD', remembered_at}, {'HLEN', unique}, {'STRLEN', seq},
}) do
    meet(each[1], each[2])
end
if broken then
    return broken
end
if now > latest then
    return reply('late')
end
local entry = is_remembered(id, kept)
local left = tonumber(string.match(entry or '', ':>(%d+)>') or nil)
if left and left >= number then
    return reply('gone')
end
local knows = entry and not left and entry ~= 'void' and string.sub(entry, 1, 6) ~= 'moved:'
if knows or redis.call('HEXISTS', jobs, id) == 1 then
    return reply('here')
end

redis.call('HDEL', stops, '') -- first write: needs no memory, because what comes here frees as much in the other queue
local controls = controls_of(record)
redis.call('HSET', jobs, id, record)
redis.call('ZADD', retry, due, id)
redis.call('HSET', tries, id, tried)
redis.call('HSET', attempts, id, log)
remember(id, digest)
if locked > now and (locker(controls.unique) or id) == id then
    redis.call('HSET', unique, controls.unique, string.format('%.0f:', locked) .. id)
end
if controls and controls.workflow and last > (tonumber(redis.call('GET', seq)) or 0) then
    redis.call('SET', seq, string.format('%.0f', last)) -- the numbers of notes grow, whatever queue they are of
end
waits_again(id, controls)
failed.enter('retry', id, due, record, signature ~= '' and signature or nil)
wake_up(wake)
wake_up(wake_alone)
return reply('here', true)
