-- archive_turns: which of these queues may this archiver empty?
--
-- KEYS  the keys below of each queue
-- Arguments: name (of the archiver), lease (ms).
-- Returns for each queue 1 if its backlog is not empty and the archiver has the turn, 0 otherwise.
--! keys archive archiver
--! answers again
--! args name lease:int
local turns, taken = {}, false
for at = 1, #KEYS, 2 do
    archive, archiver = KEYS[at], KEYS[at + 1]
    local mine = redis.call('EXISTS', archive) == 1
    if mine then
        local ends, holder = string.match(redis.call('GET', archiver) or '', '^(%d+):(.*)$')
        mine = not ends or holder == name or tonumber(ends) <= now
    end
    if mine then
        redis.call('DEL', archiver) -- first write: needs no memory
        redis.call('SET', archiver, string.format('%.0f:', now + lease) .. name)
        taken = true
    end
    turns[#turns + 1] = mine and 1 or 0
end
return reply_again(turns, taken)
