-- archive_turns: which of these queues may this archiver empty?
--
-- KEYS  the keys below of each queue   ARGV  1 clock   2 archiver   3 lease (ms)
-- Returns for each queue 1 if its outbox is not empty and the archiver has the turn, 0 otherwise.
--! keys archive archiver
--! use clock
local turns = {}
for at = 1, #KEYS, 2 do
    archive, archiver = KEYS[at], KEYS[at + 1]
    local mine = redis.call('EXISTS', archive) == 1
    if mine then
        local ends, holder = string.match(redis.call('GET', archiver) or '', '^(%d+):(.*)$')
        mine = not ends or holder == ARGV[2] or tonumber(ends) <= now
    end
    if mine then
        redis.call('DEL', archiver) -- first write: needs no memory
        redis.call('SET', archiver, string.format('%.0f:', now + tonumber(ARGV[3])) .. ARGV[2])
    end
    turns[#turns + 1] = mine and 1 or 0
end
return turns
