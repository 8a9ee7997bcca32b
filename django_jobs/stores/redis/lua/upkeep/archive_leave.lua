-- archive_leave: the archiver gives back its turns
--
-- KEYS  the key below of each queue
-- Arguments: name (of the archiver).
-- Returns an empty list.
--! answers again
--! args name
--! keys archiver
for at = 1, #KEYS do
    archiver = KEYS[at]
    local holder = string.match(redis.call('GET', archiver) or '', '^%d+:(.*)$')
    if holder == name then
        redis.call('DEL', archiver)
    end
end
return reply_again({}, true)
