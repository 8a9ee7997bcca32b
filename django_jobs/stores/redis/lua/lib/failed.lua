-- The dead jobs and those that wait for a retry, by job type and error: the index behind filters and groups.  Every move
-- into or out of `dead` and `retry` goes through `failed.enter` and `failed.leave`.
--
-- `groups` maps a letter of the state, the name, a newline and the signature to "number:jobs:first ms:last ms".  The jobs
-- of a group are lines "time id", sorted, in chunks of some kilobytes: fields of `members` whose names are in the order
-- of the sorted set `chunks`.  An entry of a sorted set of its own for each job would need three times the memory.
--
-- No transition depends on the index.  An error in it (a key has another type) must not lose a job; `repair` adds and
-- removes what is missing or left over.
--! keys jobs attempts groups chunks members
--! use record signature bytewise lastline

local failed = {}
local LETTERS = {dead = 'd', retry = 'r'}
local MOST_GROUPS = 500 -- with more, errors are told apart by their class; with twice as many, not at all
local LAST_NUMBER = 99999
local FULL, SPARSE = 4096, 1024 -- bytes of a chunk: above and below, it is divided or joined with the next
local LATEST = 9999999999999 -- ms
local KEPT = 7 * 86400000 -- ms that a group without jobs stays, because it knows when its error came first

-- The time and the id of a job as they are in a chunk: text that sorts by both.
function failed.position_of(at, id)
    return string.format('%013.0f', math.max(0, math.min(at, LATEST))) .. id
end

-- Is this position before the other one?
function failed.comes_before(one, other)
    local a, b = string.sub(one, 1, 13), string.sub(other, 1, 13)
    if a ~= b then
        return (tonumber(a) or 0) < (tonumber(b) or 0)
    end
    return less(one, other)
end

-- The chunk that has this position, or would have it.
function failed.chunk_with(number, position)
    local prefix = number .. ':'
    return redis.call('ZREVRANGEBYLEX', chunks, '[' .. prefix .. position, '[' .. prefix, 'LIMIT', 0, 1)[1]
end

function failed.chunk_after(number, chunk)
    return redis.call('ZRANGEBYLEX', chunks, '(' .. chunk, '(' .. number .. ';', 'LIMIT', 0, 1)[1]
end

local function put_chunk(chunk, text)
    redis.call('HSET', members, chunk, text)
    redis.call('ZADD', chunks, 0, chunk)
end

local function drop_chunk(chunk)
    redis.call('ZREM', chunks, chunk)
    redis.call('HDEL', members, chunk)
end

-- Where in the text this position belongs: the byte at which its line begins or would begin, and whether it is there.
local function find_line(text, position)
    local at = 1
    while at <= #text do
        local last = string.find(text, '\n', at, true) or #text + 1
        local line = string.sub(text, at, last - 1)
        if line == position then
            return at, true
        elseif failed.comes_before(position, line) then
            return at, false
        end
        at = last + 1
    end
    return at, false
end

-- Returns false if it was there already.
local function add_line(number, position)
    local chunk = failed.chunk_with(number, position) or number .. ':'
    local text = redis.call('HGET', members, chunk) or ''
    local at, known = find_line(text, position)
    if known then
        return false
    end
    local behind = string.sub(text, at)
    text = string.sub(text, 1, at - 1) .. position .. '\n'
    if #text + #behind <= FULL then
        put_chunk(chunk, text .. behind)
    elseif behind == '' and at > 1 then -- as a rule the latest comes last: chunks stay full
        put_chunk(number .. ':' .. position, position .. '\n')
    else
        text = text .. behind
        local middle = string.find(text, '\n', math.floor(#text / 2), true) or #text
        local second = string.sub(text, middle + 1)
        if second ~= '' then
            put_chunk(number .. ':' .. string.match(second, '^[^\n]*'), second)
        end
        put_chunk(chunk, string.sub(text, 1, middle))
    end
    return true
end

-- Returns false if it was not there.
function failed.remove_line(number, position)
    local chunk = failed.chunk_with(number, position)
    local text = chunk and redis.call('HGET', members, chunk)
    if not text then
        return false
    end
    local at, known = find_line(text, position)
    if not known then
        return false
    end
    local rest = string.sub(text, 1, at - 1) .. string.sub(text, at + #position + 1)
    if rest == '' then
        drop_chunk(chunk)
        return true
    end
    local following = #rest < SPARSE and failed.chunk_after(number, chunk)
    local more = following and redis.call('HGET', members, following)
    if more and #rest + #more <= FULL then
        drop_chunk(following)
        rest = rest .. more
    end
    put_chunk(chunk, rest)
    return true
end

-- A value of `groups`: its number as text, how many jobs it has, when the first and the last came (ms).
function failed.read_group(value)
    local number, jobs_in, first, last = string.match(value or '', '^(%d%d%d%d%d):(%d+):(%d+):(%d+)$')
    return number, tonumber(jobs_in), tonumber(first), tonumber(last)
end

function failed.write_group(field, number, jobs_in, first, last)
    redis.call('HSET', groups, field, string.format('%s:%.0f:%.0f:%.0f', number, jobs_in, first, last))
end

-- A number that no group has.  The field '' of `groups` has the last one that was given.
local function next_group_number()
    local last = tonumber(redis.call('HGET', groups, '') or 0) or 0
    local taken = {}
    if last >= LAST_NUMBER then
        for _, value in ipairs(redis.call('HVALS', groups)) do
            taken[tonumber((failed.read_group(value))) or 0] = true
        end
        last = 0
    end
    repeat
        last = last + 1
    until not taken[last]
    redis.call('HSET', groups, '', last)
    return string.format('%05.0f', last)
end

-- The fields of `groups` in which a job may be: by its signature, by the class of its error, by its name alone.
local function fields_of_group(state, id, record)
    local signature, class, seen = signature_of(last_line(redis.call('HGET', attempts, id)))
    local prefix = LETTERS[state] .. string.match(name_of(record), '^[^\t]*') .. '\n'
    return {prefix .. signature, prefix .. class, prefix .. '…'}, seen
end

local function try_to_enter(state, id, at, record)
    if string.find(id, '\n', 1, true) then
        return
    end
    local fields, seen = fields_of_group(state, id, record)
    local size = redis.call('HLEN', groups)
    local field, value
    for i, each in ipairs(fields) do
        value = redis.call('HGET', groups, each)
        field = each
        if value or size <= MOST_GROUPS * i then
            break
        end
    end
    local number, jobs_in, first, last = failed.read_group(value)
    seen = math.max(0, math.min(seen or now, now))
    if not number then
        number, jobs_in, first, last = next_group_number(), 0, seen, seen
    end
    if add_line(number, failed.position_of(at, id)) then
        failed.write_group(field, number, jobs_in + 1, math.min(first, seen), math.max(last, seen))
    end
end

local function try_to_leave(state, id, at, record)
    for _, field in ipairs((fields_of_group(state, id, record))) do
        local number, jobs_in, first, last = failed.read_group(redis.call('HGET', groups, field))
        if number and failed.remove_line(number, failed.position_of(at, id)) then
            failed.write_group(field, number, math.max(0, jobs_in - 1), first, last)
            return
        end
    end
end

-- Is the job, which is in `dead` or `retry` with this score, in the index?
function failed.has(state, id, at)
    local position = failed.position_of(tonumber(at), id)
    for _, field in ipairs((fields_of_group(state, id, redis.call('HGET', jobs, id) or ''))) do
        local number = failed.read_group(redis.call('HGET', groups, field))
        local chunk = number and failed.chunk_with(number, position)
        local text = chunk and redis.call('HGET', members, chunk)
        if text and select(2, find_line(text, position)) then
            return true
        end
    end
    return string.find(id, '\n', 1, true) ~= nil
end

local function try_to_drop_empty_groups()
    local flat = redis.call('HGETALL', groups)
    local many = #flat / 2 > MOST_GROUPS
    for i = 1, #flat, 2 do
        local number, jobs_in, _, last = failed.read_group(flat[i + 1])
        if number and jobs_in == 0 and (many or last < now - KEPT) and not failed.chunk_after(number, number) then
            redis.call('HDEL', groups, flat[i])
        end
    end
end

-- Forget the groups whose last job has left long ago, or all without jobs if there are too many groups.
function failed.drop_empty_groups()
    pcall(try_to_drop_empty_groups)
end

-- The job has gone into `dead` or `retry`, with this score, and the line of its last attempt is in its log.
function failed.enter(state, id, at, record)
    pcall(try_to_enter, state, id, tonumber(at), record or redis.call('HGET', jobs, id) or '')
end

-- The job has left `dead` or `retry`, where it had this score; its record and its log are still there.
function failed.leave(state, id, at, record)
    pcall(try_to_leave, state, id, tonumber(at), record or redis.call('HGET', jobs, id) or '')
end
