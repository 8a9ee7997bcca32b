-- check_turn: may this maintenance process check the queue?  One does it for all.
--
-- ARGV  1 clock   2 process   3 for how long no other process may (ms)
-- Returns 0 if it may, otherwise after how many ms it should ask again.
--! keys checker
--! use clock
local turn = redis.pcall('GET', checker)
if type(turn) == 'table' and turn.err then -- the key has another type: the check finds that
    return 0
end
local ends, holder = string.match(turn or '', '^(%d+):(.*)$')
if ends and holder ~= ARGV[2] and tonumber(ends) > now then
    return tonumber(ends) - now
end
redis.call('DEL', checker) -- first write: needs no memory
redis.call('SET', checker, string.format('%.0f:', now + tonumber(ARGV[3])) .. ARGV[2])
return 0
