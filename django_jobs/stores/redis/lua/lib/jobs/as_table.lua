-- Redis keeps a hash of up to 512 short fields as a list, and goes through it for each field that it looks for.  Of 500
-- claims, that was half of what the server does for a job.  A long field makes the list a table, which it stays until the
-- hash is empty.

-- HSET.  If the hash gets its 20th field, or so many at once, it becomes a table, unless this user may only add: from there
-- on, a table costs less than the looks at a list.  `size`: how many fields it has; `entries`: new field, value, …
local function set_fields(hash, size, entries)
    local MANY, long, n = 20, string.rep('-', 65), #entries
    local becomes_long = n >= 2 * MANY or (size < MANY and size + n / 2 >= MANY)
    if becomes_long and type(redis.pcall('HDEL', hash, long)) == 'number' then
        entries[n + 1], entries[n + 2] = long, '' -- not later: the others would be put into the list one by one
    end
    redis.call('HSET', hash, unpack(entries))
    if #entries > n then
        redis.call('HDEL', hash, long)
    end
end
