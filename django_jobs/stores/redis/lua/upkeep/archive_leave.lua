-- archive_leave: the archiver gives back its turns
--
-- KEYS  the key below of each queue   ARGV  1 clock   2 archiver
-- Returns an empty list.
--! keys archiver
for at = 1, #KEYS do
    archiver = KEYS[at]
    local holder = string.match(redis.call('GET', archiver) or '', '^%d+:(.*)$')
    if holder == ARGV[2] then
        redis.call('DEL', archiver)
    end
end
return {}
