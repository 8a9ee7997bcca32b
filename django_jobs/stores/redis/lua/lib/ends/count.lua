-- Totals: since the beginning, and per minute.
--! keys totals minutes
local minute = string.format('%d:', now - now % 60000) -- '%.0f' takes three times as long

-- A number for charts must not stop work: a value that cannot be added to is replaced.
local function add(key, field, by)
    if type(redis.pcall('HINCRBY', key, field, by)) == 'table' then
        redis.pcall('HSET', key, field, by)
    end
end

local function count(event, by)
    add(totals, event, by)
end

local function count_minute(event, by)
    add(minutes, minute .. event, by)
end
