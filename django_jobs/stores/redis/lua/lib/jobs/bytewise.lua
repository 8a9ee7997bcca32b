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
