-- The index of failed jobs: the dead jobs and those that wait for a retry, by job type and error, and by tag.  Every move
-- into or out of `dead` and `retry` goes through `failed.enter` and `failed.leave`.
--
-- `failures` has a member "group, time, id" for each job and each of its groups; all scores are 0, so the jobs of a group
-- are one range, in the order of their time.  The name of a group has 13 characters: the letter of its field, and 12 of
-- the digest of its field.  Its field in `error_groups` is the letter of the state, the job type, a newline and the
-- signature of the error; in `tag_groups` the other letter of the state and the tag.  The value is "digest:first ms:last ms".
-- `grouped` maps the id of a job to the names of its groups, one after the other: a move needs nothing else.
--
-- Python computes the signature, and a call that lets a job fail has it.  Jobs with tags that have no group, because the
-- queue has too many tags, are in one group together, whose field is the letter alone.  A tag gets a group only while that
-- group has no job.  So a tag that has a group has all its jobs in it.
--
-- No transition depends on the index.  An error in it (a key has another type) must not lose a job; `repair` adds and
-- removes what is missing or left over.
--! on demand
--! keys failures grouped error_groups tag_groups
--! use clock record

local failed = {}
local LETTERS, TAG_LETTERS = {dead = 'd', retry = 'r'}, {dead = 'D', retry = 'R'}
local NO_ERROR = '(none)' -- as in core/signature.py
local MOST_GROUPS = 500 -- with more, errors are told apart by their class; with twice as many, not at all
local MOST_TAGS = 500 -- further tags have no groups of their own
local MOST_WORDS, LONGEST = 8, 64 -- tags of a job, and bytes of a tag, as in core/options.py
local LATEST = 9999999999999 -- ms: no job has a later time
local KEPT = 7 * 86400000 -- ms that a group without jobs stays, because it knows when its error came first

-- The time and the id of a job as they are in a member: text that sorts by both.
function failed.position_of(at, id)
    return string.format('%013.0f', math.max(0, math.min(at, LATEST))) .. id
end

function failed.group_of(field)
    return string.sub(field, 1, 1) .. string.sub(redis.sha1hex(field), 1, 12)
end

-- The bounds of a range with all members of a group.
function failed.bounds_of(group)
    return '[' .. group, '(' .. group .. ':'
end

function failed.is_empty(group)
    local first, last = failed.bounds_of(group)
    return #redis.call('ZRANGEBYLEX', failures, first, last, 'LIMIT', 0, 1) == 0
end

-- The name of a group, and when its first and its last job failed (ms); nil if its entry cannot be read.
function failed.read_group(field, value)
    if value and #value <= 48 then -- longer ones are no numbers of ours
        local digest, first, last = string.match(value, '^(%x%x%x%x%x%x%x%x%x%x%x%x):(%d+):(%d+)$')
        return digest and string.sub(field, 1, 1) .. digest, tonumber(first), tonumber(last)
    end
end

function failed.write_group(key, field, group, first, last)
    redis.call('HSET', key, field, string.format('%s:%.0f:%.0f', string.sub(group, 2), first, last))
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

local function drop_empty_of(key, before)
    local flat = redis.call('HGETALL', key)
    for i = 1, #flat, 2 do
        local group, _, last = failed.read_group(flat[i], flat[i + 1])
        if group and last < before and failed.is_empty(group) then
            redis.call('HDEL', key, flat[i])
        end
    end
end

local fields_chosen = {} -- field by the signature → field of the group, in this call

-- The field of the group for this error: by its signature, by its class, by the job type alone.
local function error_field(state, name, signature)
    local prefix = LETTERS[state] .. string.match(name, '^[^\t]*') .. '\n'
    local first = prefix .. signature
    if not fields_chosen[first] then
        local size = redis.call('HLEN', error_groups)
        local class = string.match(signature, '^(.-): ') or signature
        fields_chosen[first] = prefix .. '…'
        for i, field in ipairs({first, prefix .. class .. ': …'}) do
            if size < MOST_GROUPS * i or redis.call('HEXISTS', error_groups, field) == 1 then
                fields_chosen[first] = field
                break
            end
        end
    end
    return fields_chosen[first]
end

-- The field of the group for this tag: its own, or that of the tags without a group.
local function tag_field(letter, tag)
    local field = letter .. tag
    if redis.call('HEXISTS', tag_groups, field) == 1 then
        return field
    elseif not failed.is_empty(failed.group_of(letter)) then
        return letter
    end
    if redis.call('HLEN', tag_groups) >= MOST_TAGS then
        drop_empty_of(tag_groups, math.huge)
    end
    return redis.call('HLEN', tag_groups) < MOST_TAGS and field or letter
end

local groups_met = {} -- field → name and times of its group, in this call

-- The group with this field, in which a job failed at `seen` (ms).
local function note_failure(key, field, seen)
    local group = groups_met[field]
    if not group then
        local name, first, last = failed.read_group(field, redis.call('HGET', key, field))
        group = {name = name or failed.group_of(field), first = first or LATEST, last = last or -1}
        groups_met[field] = group
    end
    if seen < group.first or seen > group.last then
        group.first, group.last = math.min(group.first, seen), math.max(group.last, seen)
        failed.write_group(key, field, group.name, group.first, group.last)
    end
    return group.name
end

-- The names of the groups of a job by its tags, which it enters.
local function enter_tags(state, id, at, record, seen)
    local names, known = '', {}
    for _, tag in ipairs(tags_of(record)) do
        local field = tag_field(TAG_LETTERS[state], tag)
        if not known[field] then
            known[field] = true
            redis.call('ZADD', failures, 0, failed.group_of(field) .. failed.position_of(at, id)) -- before it is noted:
            names = names .. note_failure(tag_groups, field, seen) -- a group without jobs may be dropped
        end
    end
    return names
end

local function try_to_enter(state, entries)
    local members, groups = {}, {}
    for _, entry in ipairs(entries) do
        local id, at = entry.id, entry.at
        local seen = math.max(0, math.min(entry.seen or now, now))
        local group = note_failure(error_groups, error_field(state, type_of(entry.record), entry.signature or NO_ERROR), seen)
        members[#members + 1] = 0
        members[#members + 1] = group .. failed.position_of(at, id)
        groups[#groups + 1] = id
        groups[#groups + 1] = group .. enter_tags(state, id, at, entry.record, seen)
    end
    redis.call('ZADD', failures, unpack(members))
    redis.call('HSET', grouped, unpack(groups))
end

-- Put the job, which is in these groups, from the time `was` to another; or out of them, if there is no other.
local function try_to_move(id, groups, was, at)
    for group in string.gmatch(groups, string.rep('.', 13)) do
        redis.call('ZREM', failures, group .. failed.position_of(was, id))
        if at then
            redis.call('ZADD', failures, 0, group .. failed.position_of(at, id))
        end
    end
end

local function try_to_leave(id, at)
    local groups = redis.call('HGET', grouped, id)
    if groups then
        try_to_move(id, groups, at)
        redis.call('HDEL', grouped, id)
    end
end

local function try_to_have_tags(state, id, at, record, seen)
    local groups = redis.call('HGET', grouped, id)
    if groups then
        try_to_move(id, string.sub(groups, 14), at)
        redis.call('HSET', grouped, id, string.sub(groups, 1, 13) .. enter_tags(state, id, at, record, seen))
    end
end

-- Is the job, which is in `dead` or `retry` with this score, in the index by its error, and by all its tags?
function failed.has(state, id, at, record)
    local groups = redis.call('HGET', grouped, id) or ''
    local position = failed.position_of(tonumber(at), id)
    local tags = tags_of(record)
    if string.sub(groups, 1, 1) ~= LETTERS[state] or #groups > 13 * (MOST_WORDS + 1) then
        return false
    end
    for group in string.gmatch(groups, string.rep('.', 13)) do
        if not redis.call('ZSCORE', failures, group .. position) then
            return false
        end
    end
    local others = failed.group_of(TAG_LETTERS[state])
    for _, tag in ipairs(tags) do
        local group = failed.group_of(TAG_LETTERS[state] .. tag)
        if not string.find(groups, group, 14, true) and not string.find(groups, others, 14, true) then
            return false
        end
    end
    return #groups == 13 or #tags > 0
end

-- Forget the groups whose last job has left long ago, or all without jobs if there are too many groups.
function failed.drop_empty_groups()
    pcall(function()
        drop_empty_of(error_groups, redis.call('HLEN', error_groups) > MOST_GROUPS and math.huge or now - KEPT)
        drop_empty_of(tag_groups, math.huge)
    end)
end

-- These jobs have gone into `dead` or `retry`: for each `id`, `at` (its score), `record`, `signature` (nil: none),
-- and `seen`, when it failed (ms; nil: now).
function failed.enter_all(state, entries)
    if #entries > 0 then
        pcall(try_to_enter, state, entries)
    end
end

-- One job has.
function failed.enter(state, id, at, record, signature, seen)
    local entry = {id = id, at = tonumber(at), record = record or '', signature = signature, seen = seen}
    failed.enter_all(state, {entry})
end

-- The job has left `dead` or `retry`, where it had this score.
function failed.leave(id, at)
    pcall(try_to_leave, id, tonumber(at))
end

-- The job, which has not left, has another score.
function failed.move(id, was, at)
    pcall(function()
        try_to_move(id, redis.call('HGET', grouped, id) or '', tonumber(was), at)
    end)
end

-- The job, which has not left, has other tags.
function failed.tag(state, id, at, record, seen)
    pcall(try_to_have_tags, state, id, tonumber(at), record, seen)
end
