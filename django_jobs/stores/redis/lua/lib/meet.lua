-- Is a key sound that will be needed?  Asked before the first job is taken out.
local met, broken = {}, nil -- key that was looked at → its size; what Redis says of the first that has another type
local function meet(command, key)
    if not broken and not met[key] then
        met[key] = redis.pcall(command, key)
        broken = type(met[key]) == 'table' and met[key] or nil
    end
end
