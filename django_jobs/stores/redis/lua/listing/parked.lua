-- parked: the names whose jobs wait for a worker that knows them
--
-- ARGV  1 clock (not used)   2 maximum number of names
-- Returns name, number of its jobs, flat; then the fields of `unknown`, as one list.
--! use clock unknown
local found, seen = {}, 0
for _, letter in ipairs({'a', 's'}) do
    local from, high = '[\4' .. letter, '(\4' .. letter .. '\255'
    while seen < tonumber(ARGV[2]) do
        local head = redis.call('ZRANGEBYLEX', blocked, from, high, 'LIMIT', 0, 1)[1]
        if not head then
            break
        end
        local key = string.match(head, '^(%Z*)%z')
        if key then
            found[#found + 1] = string.sub(key, 3)
            found[#found + 1] = redis.call('ZLEXCOUNT', blocked, '[' .. key .. '\0', '(' .. key .. '\1')
            seen = seen + 1
        end
        from = '(' .. (key and key .. '\1' or head)
    end
end
return {found, seen > 0 and redis.call('HKEYS', unknown) or {}}
