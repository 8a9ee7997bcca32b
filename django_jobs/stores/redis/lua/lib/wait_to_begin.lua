-- A suspect whose next crash would be its last is not begun before `begin` says so.  (Separate from last_crash.lua: `claim`
-- has as many locals as Lua allows.)
--! keys tries

-- `tried`: the values of `tries` of these jobs, which are changed here too.
local function wait_to_begin(ids, tried, max_crashes)
    for i = 1, #tried do
        local failures, crashes, parked = string.match(tried[i] or '', '^(%d+):0+(%d+):(%d+)$')
        if crashes and tonumber(crashes) + 1 >= max_crashes then
            tried[i] = failures .. ':00' .. crashes .. ':' .. parked
            redis.call('HSET', tries, ids[i], tried[i])
        end
    end
end
