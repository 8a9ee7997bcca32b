-- wake: wakes another worker for these queues
--
-- KEYS  the keys below of each queue
-- Arguments: lane.
--! keys wake wake_alone
--! answers again
--! args lane
--! use wake
for at = 1, #KEYS, 2 do
    wake_up(KEYS[lane == 'shared' and at or at + 1])
end
return reply_again({})
