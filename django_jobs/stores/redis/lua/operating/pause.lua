-- pause: pauses the queue ("") or a job type
--
-- Arguments: name or "", ends (ms, 0 = until resumed), reason.
-- Returns 1, or 0 if it is paused so already: then it stays paused since that time.
--! answers number
--! args name ends:int reason
--! keys paused
local was, head = redis.call('HGET', paused, name) or '', string.format('%.0f:', ends)
local since, at = string.match(was, '^%d+:(%d+):()')
if (since or '0') ~= '0' and (ends == 0 or ends > now) and string.sub(was, 1, #head) == head and string.sub(was, at) == reason then
    return reply(0, false)
end
redis.call('HDEL', paused, name) -- first write: needs no memory
redis.call('HSET', paused, name, head .. string.format('%.0f:', now) .. reason)
return reply(1, true)
