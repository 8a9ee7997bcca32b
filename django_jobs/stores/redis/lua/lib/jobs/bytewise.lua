-- Compares by bytes, as Redis orders members of equal score: Lua would compare by the server's locale.
local function less(a, b)
    local from = 1
    while from + 7 <= #a and string.sub(a, from, from + 7) == string.sub(b, from, from + 7) do -- ids begin with their time
        from = from + 8
    end
    for i = from, math.min(#a, #b) do
        local one, other = string.byte(a, i), string.byte(b, i)
        if one ~= other then
            return one < other
        end
    end
    return #a < #b
end

-- The rank, from `low` to `high`, of the first member behind `last`, where all members have one score.  `reverse`: in
-- the order from the highest score down.
local function rank_behind(place, low, high, last, reverse)
    while low < high do
        local middle = math.floor((low + high) / 2)
        local one, other = last, redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', place, middle, middle)[1]
        if reverse then
            one, other = other, one
        end
        if less(one, other) then
            high = middle
        else
            low = middle + 1
        end
    end
    return low
end
