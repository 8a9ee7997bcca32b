-- Redis keeps a hash of up to 512 short fields as a list, and goes through it for each field that it looks for.  Of 500
-- claims, that was half of what the server does for a job.  A long field makes the list a table, which it stays until the
-- hash is empty.
--! on demand
local LONG = 20 -- fields from which a table costs less than the looks at a list

-- Is the list about to become long?  `size`: how many fields it has; `added`: how many more it gets.
local function becomes_long(size, added)
    return added >= LONG or (size < LONG and size + added >= LONG)
end

-- HSET, after which the hash is a table, unless this user may only add.  `entries`: field, value, …
local function set_in_table(hash, entries)
    local long, n = string.rep('-', 65), #entries
    if type(redis.pcall('HDEL', hash, long)) == 'number' then
        entries[n + 1], entries[n + 2] = long, '' -- not later: the others would be put into the list one by one
    end
    redis.call('HSET', hash, unpack(entries))
    redis.pcall('HDEL', hash, long)
end
