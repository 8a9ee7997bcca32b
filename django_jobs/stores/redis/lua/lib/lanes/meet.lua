-- Checks the type of a key that will be needed.  Called before the first job is taken out.
local met, broken = {}, nil -- checked key → its size; Redis' error for the first key of another type
local function meet(command, key)
    if not broken and not met[key] then
        met[key] = redis.pcall(command, key)
        broken = type(met[key]) == 'table' and met[key] or nil
    end
end
