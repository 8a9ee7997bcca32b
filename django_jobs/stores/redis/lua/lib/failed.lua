-- The dead jobs and those that wait for a retry, by job type and error, and by tag: the index behind filters and groups.  Every move
-- into or out of `dead` and `retry` goes through `failed.enter` and `failed.leave`.
--
-- `groups` maps a letter of the state, the name, a newline and the signature to "number:jobs:first ms:last ms".  The jobs
-- of a group are lines "time id", sorted, in chunks of some kilobytes: fields of `members` whose names are in the order
-- of the sorted set `chunks`.  An entry of a sorted set of its own for each job would need three times the memory.
--
-- `tags` is the same for tags: it maps the letter and a tag.  A job is in the group of each of its tags.  Jobs with tags
-- that have no group, because the queue has too many tags, are in one group together, whose field is the letter alone.
-- A tag gets a group only while that group has no job.  So a tag that has a group has all its jobs in it.
--
-- Long because both indexes are kept in the same parts, by the same moves.
--
-- No transition depends on the index.  An error in it (a key has another type) must not lose a job; `repair` adds and
-- removes what is missing or left over.
--! on demand
--! keys jobs attempts groups chunks members tags
--! use record signature bytewise lastline

local failed = {}
local LETTERS = {dead = 'd', retry = 'r'}
local MOST_GROUPS = 500 -- with more, errors are told apart by their class; with twice as many, not at all
local MOST_TAGS = 500 -- further tags have no groups of their own
local MOST_WORDS, LONGEST = 8, 64 -- tags of a job, and bytes of a tag, as in core/options.py
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

local function put_chunk(chunk, text, known)
    redis.call('HSET', members, chunk, text)
    if not known then
        redis.call('ZADD', chunks, 0, chunk)
    end
end

local function drop_chunk(chunk)
    redis.call('ZREM', chunks, chunk)
    redis.call('HDEL', members, chunk)
end

-- Where in the text this position belongs: the byte at which its line begins or would begin, and whether it is there.
-- `from`: a byte at which a line begins that comes before it.
function failed.find_line(text, position, from)
    local at, behind = from or 1, #text + 1
    while behind - at > 200 do -- halve what is left, until it has a few lines
        local first = (string.find(text, '\n', math.floor((at + behind) / 2), true) or #text) + 1
        if first >= behind then
            break
        elseif failed.comes_before(position, string.sub(text, first, (string.find(text, '\n', first, true) or behind) - 1)) then
            behind = first
        else
            at = first
        end
    end
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

-- Write the lines of a chunk, divided if they are too many.  `known`: this chunk is there.  `at_end`: only lines behind
-- its own are new; as a rule the latest comes last, so chunks are filled.  Otherwise, all parts have the same size.
local function write_lines(number, chunk, text, known, at_end)
    local most = at_end and FULL or math.ceil(#text / (math.floor(#text / FULL) + 1))
    local from = 1
    while from <= #text do
        local last = #text
        if last - from >= FULL and at_end then
            local lines = string.match(string.sub(text, from, from + most - 1), '^.*\n')
            last = lines and from + #lines - 1 or string.find(text, '\n', from, true)
        elseif last - from >= most and #text > FULL then
            last = string.find(text, '\n', from + most - 1, true) or last
        end
        put_chunk(chunk or number .. ':' .. string.match(text, '^[^\n]*', from), string.sub(text, from, last), known)
        chunk, from, known = nil, last + 1, false
    end
end

-- Add lines at these positions, which are sorted.  Returns how many were not there already.
local function add_lines(number, positions)
    local added, i = 0, 1
    while positions[i] do
        local chunk = failed.chunk_with(number, positions[i])
        local text = chunk and redis.call('HGET', members, chunk) or ''
        chunk = chunk or number .. ':'
        local following = positions[i + 1] and failed.chunk_after(number, chunk)
        local ends = following and string.sub(following, #number + 2)
        local parts, from, kept = {}, 1, nil
        repeat
            local at, there = failed.find_line(text, positions[i], from)
            if not there then
                kept = kept or at - 1
                parts[#parts + 1] = string.sub(text, from, at - 1)
                parts[#parts + 1] = positions[i] .. '\n'
                from, added = at, added + 1
            end
            i = i + 1
        until not positions[i] or (ends and not failed.comes_before(positions[i], ends))
        if kept then
            parts[#parts + 1] = string.sub(text, from)
            write_lines(number, chunk, table.concat(parts), text ~= '', kept == #text)
        end
    end
    return added
end

-- Returns false if it was not there.
function failed.remove_line(number, position)
    local chunk = failed.chunk_with(number, position)
    local text = chunk and redis.call('HGET', members, chunk)
    if not text then
        return false
    end
    local at, known = failed.find_line(text, position)
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
    put_chunk(chunk, rest, true)
    return true
end

-- A value of `groups` or `tags`: its number as text, how many jobs it has, when the first and the last came (ms).
function failed.read_group(value)
    local number, jobs_in, first, last = string.match(value or '', '^(%d%d%d%d%d):(%d+):(%d+):(%d+)$')
    return number, tonumber(jobs_in), tonumber(first), tonumber(last)
end

-- `key`: `groups` or `tags`.
function failed.write_group(key, field, number, jobs_in, first, last)
    redis.call('HSET', key, field, string.format('%s:%.0f:%.0f:%.0f', number, jobs_in, first, last))
end

-- A number that no group has.  The field '' of `groups` counts how many were given: after LAST_NUMBER they are given
-- again from 1, without those of groups that still exist.  `tags` has no such field.
local function next_group_number()
    local given, taken = tonumber(redis.call('HGET', groups, '') or 0), {}
    if not (given and given >= 0 and given < 2 ^ 52 and given % 1 == 0) then -- another hand wrote it
        given = LAST_NUMBER
    end
    if given >= LAST_NUMBER then
        for _, key in ipairs({groups, tags}) do
            for _, value in ipairs(redis.call('HVALS', key)) do
                taken[tonumber((failed.read_group(value))) or 0] = true
            end
        end
    end
    local number
    repeat
        given = given + 1
        number = string.format('%05.0f', (given - 1) % LAST_NUMBER + 1)
    until not taken[tonumber(number)] and not failed.chunk_after(number, number) -- left by a group of a lost key
    redis.call('HSET', groups, '', string.format('%.0f', given))
    return number
end

-- The fields of `groups` in which a job may be: by its signature, by the class of its error, by its name alone.  `line`:
-- the last one of its log, if the caller has it.
local function fields_of_group(state, id, record, line)
    local signature, class, seen = signature_of(line or last_line(redis.call('HGET', attempts, id)))
    local prefix = LETTERS[state] .. string.match(name_of(record), '^[^\t]*') .. '\n'
    return {prefix .. signature, prefix .. class, prefix .. '…'}, seen
end

-- The tags in a record; most have none.
local function tags_of(record)
    local text = string.match(record, '^[^\n]*\n[^\n]*\n[^\n]-"tags":"([%w_.:/@+= -]*)"')
    local found, seen = {}, {}
    for tag in string.gmatch(text or '', '[^ ]+') do
        if #found < MOST_WORDS and #tag <= LONGEST and not seen[tag] then
            found[#found + 1], seen[tag] = tag, true
        end
    end
    return found
end

-- The field of `tags` for a tag of a job that enters: its own, or that of the tags without a group.  `found`: the groups
-- of this call, of which `new` are not written yet.
local function field_of_tag(letter, tag, found, new)
    local field = letter .. tag
    if found[field] or redis.call('HEXISTS', tags, field) == 1 then
        return field
    end
    local _, others = failed.read_group(redis.call('HGET', tags, letter))
    local full = found[letter] or (others or 0) > 0 or redis.call('HLEN', tags) + new >= MOST_TAGS
    return full and letter or field
end

local function group_in(key, field)
    local number, jobs_in, first, last = failed.read_group(redis.call('HGET', key, field))
    return {field = field, number = number, jobs_in = jobs_in or 0, first = first, last = last, positions = {}}
end

-- Note that this entry, which failed at `seen` (ms), belongs to the group.
local function put_into(group, entry, seen)
    seen = math.max(0, math.min(seen or now, now))
    group.number = group.number or next_group_number()
    group.first, group.last = math.min(group.first or seen, seen), math.max(group.last or seen, seen)
    group.positions[#group.positions + 1] = failed.position_of(entry.at, entry.id)
end

local function write_groups(key, by_field)
    for field, group in pairs(by_field) do
        table.sort(group.positions, failed.comes_before)
        local added = add_lines(group.number, group.positions)
        if added > 0 then
            failed.write_group(key, field, group.number, group.jobs_in + added, group.first, group.last)
        end
    end
end

-- The group of a job that enters, with its `field`.  `new`: how many groups of this call are not written yet.
local function group_for(fields, new)
    local size = redis.call('HLEN', groups) + new
    local field, value
    for i, each in ipairs(fields) do
        value = redis.call('HGET', groups, each)
        field = each
        if value or size <= MOST_GROUPS * i then
            break
        end
    end
    return group_in(groups, field)
end

-- Enter these jobs by their tags.
local function enter_tags(state, entries)
    local letter, found, new = LETTERS[state], {}, 0
    for _, entry in ipairs(entries) do
        local seen, known = nil, {}
        for _, tag in ipairs(string.find(entry.id, '\n', 1, true) and {} or tags_of(entry.record)) do
            local field = field_of_tag(letter, tag, found, new)
            if not found[field] then
                found[field] = group_in(tags, field)
                new = new + (found[field].number and 0 or 1)
            end
            if not known[field] then
                local line = not seen and (entry.line or last_line(redis.call('HGET', attempts, entry.id)))
                seen = seen or select(3, signature_of(line)) or now
                put_into(found[field], entry, seen)
                known[field] = true
            end
        end
    end
    write_groups(tags, found)
end

local function try_to_enter(state, entries)
    local found, by_field, new = {}, {}, 0 -- signature's field → group; field of the group → the same group
    for _, entry in ipairs(entries) do
        if not string.find(entry.id, '\n', 1, true) then
            local fields, seen = fields_of_group(state, entry.id, entry.record, entry.line)
            local group = found[fields[1]]
            if not group then
                group = group_for(fields, new)
                new = new + ((group.number or by_field[group.field]) and 0 or 1)
                group = by_field[group.field] or group
                found[fields[1]], by_field[group.field] = group, group
            end
            put_into(group, entry, seen)
        end
    end
    write_groups(groups, by_field)
    enter_tags(state, entries)
end

-- Take a job out of a group.  Returns whether it was there.
local function leave_group(key, field, position)
    local number, jobs_in, first, last = failed.read_group(redis.call('HGET', key, field))
    if not number or not failed.remove_line(number, position) then
        return false
    elseif key == tags and jobs_in <= 1 and not failed.chunk_after(number, number) then
        redis.call('HDEL', tags, field) -- another tag may have its place
    else
        failed.write_group(key, field, number, math.max(0, jobs_in - 1), first, last)
    end
    return true
end

local function try_to_leave(state, id, at, record)
    local position, others = failed.position_of(at, id), false
    for _, field in ipairs((fields_of_group(state, id, record))) do
        if leave_group(groups, field, position) then
            break
        end
    end
    for _, tag in ipairs(tags_of(record)) do
        others = not leave_group(tags, LETTERS[state] .. tag, position) or others
    end
    if others then
        leave_group(tags, LETTERS[state], position)
    end
end

local function has_line(key, field, position)
    local number = failed.read_group(redis.call('HGET', key, field))
    local chunk = number and failed.chunk_with(number, position)
    local text = chunk and redis.call('HGET', members, chunk)
    return text and select(2, failed.find_line(text, position)) or false
end

-- Is the job, which is in `dead` or `retry` with this score, in the index by its error, and by all its tags?
function failed.has(state, id, at)
    local position, record = failed.position_of(tonumber(at), id), redis.call('HGET', jobs, id) or ''
    if string.find(id, '\n', 1, true) then
        return true, true
    end
    local in_errors, in_tags = false, true
    for _, field in ipairs((fields_of_group(state, id, record))) do
        in_errors = in_errors or has_line(groups, field, position)
    end
    for _, tag in ipairs(tags_of(record)) do
        local field = LETTERS[state] .. tag
        field = redis.call('HEXISTS', tags, field) == 1 and field or LETTERS[state]
        in_tags = in_tags and has_line(tags, field, position)
    end
    return in_errors, in_tags
end

-- Is the job, which is in `dead` or `retry` with this score, in one of these groups, by its error or by a tag?  `numbers`:
-- theirs, separated by spaces.  Returns this, and how many bytes were read of the job.
function failed.is_in(state, id, at, numbers)
    local position, record = failed.position_of(at, id), redis.call('HGET', jobs, id) or ''
    local log = redis.call('HGET', attempts, id)
    local size = #record + #(log or '')
    local function has(key, field)
        local number = failed.read_group(redis.call('HGET', key, field))
        return number and string.find(numbers, number, 1, true) and has_line(key, field, position)
    end
    for _, field in ipairs((fields_of_group(state, id, record, last_line(log)))) do
        if has(groups, field) then
            return true, size
        end
    end
    for _, tag in ipairs(tags_of(record)) do
        if has(tags, LETTERS[state] .. tag) or has(tags, LETTERS[state]) then
            return true, size
        end
    end
    return false, size
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

-- These jobs have gone into `dead` or `retry`: for each `id`, `at` (its score), `record`, and `line`, the last line of its
-- log.
function failed.enter_all(state, entries)
    if #entries > 0 then
        pcall(try_to_enter, state, entries)
    end
end

-- One job has, which the index has by its error, but not by all its tags.
function failed.enter_by_tags(state, id, at)
    pcall(enter_tags, state, {{id = id, at = tonumber(at), record = redis.call('HGET', jobs, id) or ''}})
end

-- One job has.  The line of its last attempt is in its log.
function failed.enter(state, id, at, record)
    failed.enter_all(state, {{id = id, at = tonumber(at), record = record or redis.call('HGET', jobs, id) or ''}})
end

-- The job has left `dead` or `retry`, where it had this score; its record and its log are still there.
function failed.leave(state, id, at, record)
    pcall(try_to_leave, state, id, tonumber(at), record or redis.call('HGET', jobs, id) or '')
end
