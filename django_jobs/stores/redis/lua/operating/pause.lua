-- pause: pauses the queue ("") or a job type
--
-- Arguments: name or "", ends (ms, 0 = until resumed), reason.
--! answers number
--! args name ends:int reason
--! keys paused
redis.call('HDEL', paused, name) -- first write: needs no memory
redis.call('HSET', paused, name, string.format('%.0f:%.0f:', ends, now) .. reason)
return reply(1, true)
