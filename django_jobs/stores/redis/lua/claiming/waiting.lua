-- waiting: how many queued jobs had arrived by a number of the queue; 0 while the queue is paused
--
-- ARGV  1 clock   2 number
--! use clock pauses arrived
if pauses() then
    return 0
end
local up_to = tonumber(ARGV[2])
return count_arrived(queued, up_to) + count_arrived(alone, up_to)
