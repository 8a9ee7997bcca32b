-- Returns a kept answer that is a list.
local function lines_of(text)
    local list = {}
    for line in string.gmatch(text, '[^\n]+') do
        list[#list + 1] = line
    end
    return list
end
