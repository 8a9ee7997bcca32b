-- Compares by bytes, as Redis orders members of equal score: Lua would compare by the server's locale.
local function less(a, b)
    for i = 1, math.min(#a, #b) do
        local one, other = string.byte(a, i), string.byte(b, i)
        if one ~= other then
            return one < other
        end
    end
    return #a < #b
end
