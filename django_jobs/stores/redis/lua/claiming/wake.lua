-- wake: wakes another worker for these queues
--
-- KEYS  the keys below of each queue   ARGV  1 clock   2 lane
--! keys wake wake_alone
--! use wake
for at = 1, #KEYS, 2 do
    wake_up(KEYS[ARGV[2] == 'shared' and at or at + 1])
end
return {}
