-- check_turn: may this maintenance process check the queue?  One does it for all.
--
-- Arguments: process, lease (for how long no other process may, ms).
-- Returns 0 if it may, otherwise after how many ms it should ask again.
--! keys checker
--! answers number
--! args process lease:int
local turn = redis.pcall('GET', checker)
if type(turn) == 'table' and turn.err then -- the key has another type: the check finds that
    return reply(0)
end
local ends, holder = string.match(turn or '', '^(%d+):(.*)$')
if ends and holder ~= process and tonumber(ends) > now then
    return reply(tonumber(ends) - now)
end
redis.call('DEL', checker) -- first write: needs no memory
redis.call('SET', checker, string.format('%.0f:', now + lease) .. process)
return reply(0, true)
