-- workflow_end: what the ends of steps mean for their workflows or batches: which steps may start, and how they stand
--
-- Long because it is one transition: everything that the end of a step means for the steps after it, and for callbacks.
--
-- KEYS  the workflows (see "A workflow" in docs/contributing/internals.md); on a Cluster one
-- Arguments: verb ("" | "close": the batch gets no more jobs | "stop": what has not started never starts
--       | "started": all its first steps are in the store, and of a batch these callbacks
--       | "drop": those of the steps that have not started never start)
--       then per workflow: how many groups of ends; per group: number of the note ("=n": only if n is the number of a
--       step's last one), state, "-" or "r" (with results), how many, then the steps, with "r" each with its result
--
-- A note that is read again changes nothing, and returns again what may start because of it.  The caller enqueues that:
-- its ids are derived from workflow and step, and no id is enqueued twice.
--
-- Returns for each workflow {state ("" = there is no such workflow), steps started and not ended, {step, what to enqueue,
--          {step, its result, …}, …}}.  Where these would be too long, false instead of what to enqueue: the caller reads it.
--! answers again
--! args verb
local MOST_BYTES = 1024 * 1024
local MOST_STEPS = 10000 -- as in stores/values/workflows.py
answers_kept = OF_WORKFLOW
local call, match, format = redis.call, string.match, string.format
local BAD = {dead = 1, cancelled = 1, expired = 1, deleted = 1}
local ENDED = {succeeded = true, dead = true, cancelled = true, expired = true, deleted = true}
local NONE = {}
local at_now = format('%.0f', now)
local lists = {} -- text → the numbers in it: many workflows have the same few

-- What is known of the workflow in hand, and what changes.  Most ends need few of these tables: what a workflow has left
-- empty is used for the next, because Lua takes as long to make a table as Redis to read a field.
local flow, is_batch, stopped
local known -- field → its value, false if it has none; nil: it was not read
local stands, nexts -- step → "number:state", of a batch "number:state:queue"; step → the steps after it
local delta -- counter → its change
local final -- field → its new value; false: it goes
local touched, good, ill = {}, {}, {} -- steps that wait for the ones that ended; what changed for them
local again, first_ends = {}, {} -- steps to which these ends were applied before; steps that ended
local ready, is_ready = {}, {}

local function bump(counter, by)
    delta[counter] = (delta[counter] or 0) + by
end

-- For fields that most ends do not need.
local function value_of(field)
    if known[field] == nil then
        known[field] = call('HGET', flow, field)
    end
    return known[field]
end

-- A damaged number counts as 0, and is replaced: it must not keep a workflow from going on.
local function counted(counter)
    local n = tonumber(value_of(counter) or nil)
    n = n and n % 1 == 0 and math.abs(n) < 2 ^ 53 and n or 0
    return n + (delta[counter] or 0)
end

local function put(field, value)
    final[field] = value
end

-- Ask for many fields: few thousand at a time, because of Lua's unpack.
local function read(prefix, keys)
    local found = {}
    for first = 1, #keys, 1000 do
        local fields = {}
        for i = first, math.min(first + 999, #keys) do
            fields[#fields + 1] = prefix .. keys[i]
        end
        for i, value in ipairs(call('HMGET', flow, unpack(fields))) do
            found[keys[first + i - 1]] = value
        end
    end
    return found
end

-- Read the workflow, and what it knows of these steps.  Returns whether it is there.
local function begin(steps)
    local step = steps[1] or ''
    local stand, following, kind, x, wanting, ended, firsts, live, succeeded
    stand, following, kind, stopped, x, wanting, ended, firsts, live, succeeded = unpack(call(
        'HMGET', flow, 's:' .. step, 'x:' .. step, 'kind', 'stopped', 'x', 'wanting', 'ended', 'firsts', 'live', 'succeeded'
    ))
    if not kind then
        return false
    end
    known = {x = x, wanting = wanting, ended = ended, firsts = firsts, live = live, succeeded = succeeded, waiting = nil}
    is_batch = kind == 'batch'
    stands, nexts = {[step] = stand}, {[step] = following} -- false: as most steps, in the field `x`
    if steps[2] then
        stands = read('s:', steps)
        nexts = is_batch and NONE or read('x:', steps)
    end
    delta = {waiting = nil, live = nil, succeeded = nil} -- as large as most need it: to grow costs more than to make
    final = {
        waiting = nil, live = nil, succeeded = nil, state = nil, touched = nil, ended = nil, firsts = nil, f0 = nil,
        started = nil,
    }
    again, first_ends = again[1] and {} or again, first_ends[1] and {} or first_ends
    if ready[1] then
        ready, is_ready = {}, {}
    end
    return true
end

local function next_of(step)
    local text = nexts[step]
    if text == nil then
        text = call('HGET', flow, 'x:' .. step)
    end
    text = text or known.x or ''
    if not lists[text] then
        lists[text] = {}
        for m in string.gmatch(text, '%d+') do
            table.insert(lists[text], m)
        end
    end
    return lists[text]
end

local function moves(step, old, new)
    if old == new then
        return
    end
    bump(old, -1)
    bump(new, 1)
    if is_batch then
        return
    end
    local g = (new == 'succeeded' and 1 or 0) - (old == 'succeeded' and 1 or 0)
    local b = (BAD[new] or 0) - (BAD[old] or 0)
    if g ~= 0 or b ~= 0 then
        for _, m in ipairs(next_of(step)) do
            if not good[m] then
                good[m], ill[m] = 0, 0
                touched[#touched + 1] = m
            end
            good[m], ill[m] = good[m] + g, ill[m] + b
        end
    end
end

-- A step that waits never starts, whatever becomes of the steps before it: as if these were to succeed, and it were
-- cancelled because of them.
local function drop(step)
    local left, bad, off = match(value_of('l:' .. step) or '', '^(%d+):(%d+):%a(!?)$')
    if left then
        put('l:' .. step, left .. ':' .. bad .. ':w!')
        put('s:' .. step, '0:cancelled')
        moves(step, off == '!' and 'cancelled' or 'waiting', 'cancelled')
    end
end

-- Apply the ends of the workflow, whose arguments begin at `at`.
local function apply(at)
    for _ = 1, tonumber(ARGV[at]) do
        local text, state, size = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == 'r' and 2 or 1
        local expected = match(text, '^=(%d+)$')
        local number = tonumber(expected or text)
        local value = (expected or text) .. ':' .. state
        local last_one = at + 4 + size * tonumber(ARGV[at + 4])
        for i = at + 5, last_one, size do
            local step = ARGV[i]
            local stand = stands[step]
            local last, old, rest = 0, 'live', nil
            if stand then
                last, old, rest = match(stand, '^(%d+):(%a+)(.*)$')
                last, old = tonumber(last) or 0, old or 'live'
            end
            local late = expected and (number ~= last or old == state) or not expected and number <= last
            if verb == 'started' then
                put('b:' .. step, '2')
            elseif verb == 'drop' then
                drop(step)
            elseif is_batch and (not stand or old == 'none') then -- not a job of this batch
            elseif old == 'succeeded' or late then
                again[#again + 1] = step
            else
                stands[step] = rest and value .. rest or value
                put('s:' .. step, stands[step])
                moves(step, old, state)
                if ENDED[state] then
                    first_ends[#first_ends + 1] = step
                    if state == 'succeeded' and size == 2 then
                        put('r:' .. step, ARGV[i + 1])
                    end
                end
            end
        end
        at = last_one
    end
end

-- A step that has ended needs its record no more, nor the results that it named.
local function let_go(steps)
    for _, step in ipairs(steps) do
        put('d:' .. step, false)
    end
    if not known.wanting then
        return
    end
    call('HDEL', flow, '') -- first write: needs no memory, or HINCRBY would be refused, as if the number were damaged
    for step, wants in pairs(read('w:', steps)) do
        if wants then
            put('w:' .. step, false)
            for n in string.gmatch(wants, '%d+') do
                local left = redis.pcall('HINCRBY', flow, 'u:' .. n, -1)
                if type(left) == 'table' or left <= 0 then -- a damaged number: nothing may be kept for ever
                    put('u:' .. n, false)
                    put('r:' .. n, false)
                end
            end
        end
    end
end

local function start(step)
    if not is_ready[step] then
        is_ready[step] = true
        ready[#ready + 1] = step
    end
end

-- One step that waits: have all steps before it ended as it needs?
-- `l:step` is "steps before it that have not succeeded:those of them that ended otherwise:policy", with "!" at the end
-- while it is cancelled because of them.
local function look_at(step, waits)
    local g, b = good[step], ill[step]
    good[step], ill[step] = nil, nil
    local left, bad, policy, off = match(waits or '', '^(%d+):(%d+):(%a)(!?)$')
    if not left then
        return -- it has started already
    end
    left, bad, off = left - g, bad + b, off == '!'
    if policy == 'c' and (bad > 0) ~= off then
        off = not off
        if off then
            put('s:' .. step, '0:cancelled')
            moves(step, 'waiting', 'cancelled')
        else
            put('s:' .. step, false)
            moves(step, 'cancelled', 'waiting')
        end
    end
    if not stopped and not off and (left == 0 or (policy == 'r' and left == bad)) then
        put('l:' .. step, false)
        moves(step, 'waiting', 'live')
        start(step)
    else
        put('l:' .. step, left .. ':' .. bad .. ':' .. policy .. (off and '!' or ''))
    end
end

-- Write what has changed.  Returns whether anything has.
local function write()
    local writes, dropped, n, m = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}, {nil, nil, nil, nil}, 0, 0
    for field, value in pairs(final) do
        if value then
            writes[n + 1], writes[n + 2], n = field, value, n + 2
        else
            dropped[m + 1], m = field, m + 1
        end
    end
    for first = 1, n, 2000 do
        local last = math.min(first + 1999, n)
        if type(redis.pcall('HSET', flow, unpack(writes, first, last))) == 'table' then -- an error: the memory is full
            redis.pcall('HDEL', flow, '') -- first write: needs no memory; a user that may only add has no HDEL
            call('HSET', flow, unpack(writes, first, last))
        end
    end
    for first = 1, m, 2000 do
        call('HDEL', flow, unpack(dropped, first, math.min(first + 1999, m)))
    end
    return n > 0
end

-- The callbacks of a batch; each starts once, and those that start together start in this order on every server.
local function call_back(due, is_repeated)
    for _, name in ipairs({'on_success', 'on_complete', 'on_dead'}) do
        local is_due = due[name]
        if call('HEXISTS', flow, 'd:' .. name) == 1 then
            local begun = final['b:' .. name] or call('HGET', flow, 'b:' .. name) -- "2": it is in the store
            if is_due and not begun then
                put('b:' .. name, '1')
                start(name)
            elseif begun == '1' and is_repeated then
                start(name)
            end
        end
    end
end

local bytes = 0
-- The results that the step named, flat.
local function results_for(step)
    local numbers, given = {}, {}
    for n in string.gmatch(call('HGET', flow, 'w:' .. step) or '', '%d+') do
        numbers[#numbers + 1] = n
    end
    for n, result in pairs(#numbers > 0 and read('r:', numbers) or {}) do
        if result then
            given[#given + 1] = n
            given[#given + 1] = result
            bytes = bytes + #result
        end
    end
    return given
end

-- Go on with one workflow, whose arguments begin at `at`.  Returns the answer, and whether anything has changed.
local function go_on(at, steps)
    if not begin(steps) then
        return {'', 0, NONE}, false
    end
    apply(at)
    if not is_batch and #first_ends > 0 then
        let_go(first_ends)
    end
    if verb == 'stop' then
        stopped = '1'
        put('stopped', '1')
    elseif verb == 'started' then
        put('started', '1')
    elseif verb == 'close' and not value_of('closed') then
        put('closed', '1')
    end
    while #touched > 0 do
        local wave = touched
        touched = {}
        local waits = wave[2] and read('l:', wave) or {[wave[1]] = call('HGET', flow, 'l:' .. wave[1])}
        for _, step in ipairs(wave) do
            look_at(step, final['l:' .. step] == nil and waits[step] or final['l:' .. step])
        end
    end

    for counter, by in pairs(delta) do
        if by ~= 0 then
            put(counter, format('%d', counted(counter)))
        end
    end
    local live = counted('live')
    local over = live == 0 and (not is_batch or verb == 'close' or stopped or value_of('closed'))
    local state = stopped and 'cancelled' or 'running'
    if over and not stopped then
        state = counted('succeeded') == tonumber(value_of('total')) and 'succeeded' or 'stopped'
    end
    if is_batch and not stopped then
        local due = {on_dead = counted('dead') > 0, on_complete = over, on_success = state == 'succeeded'}
        call_back(due, #again > 0 or verb == 'close')
    end
    if next(final) then
        if state ~= 'running' or known.ended then
            put('state', state)
        end
        put('touched', at_now)
        local has_ended = over and state ~= 'running'
        if has_ended ~= (known.ended and true or false) then
            put('ended', has_ended and at_now)
        end
        if known.firsts and verb ~= 'started' and value_of('started') then -- all of these jobs are in the store
            put('firsts', false)
            for i = 0, math.min(tonumber(known.firsts) or 0, MOST_STEPS) - 1 do
                put('f' .. i, false)
            end
        end
    end
    local changed = write()
    if not is_batch and not stopped then
        for _, step in ipairs(again) do
            for _, m in ipairs(next_of(step)) do
                if call('HEXISTS', flow, 'l:' .. m) == 0 and call('HEXISTS', flow, 'd:' .. m) == 1 then
                    start(m)
                end
            end
        end
    end

    local out = {}
    for _, step in ipairs(ready) do
        local given = bytes < MOST_BYTES and known.wanting and results_for(step) or NONE
        local what = bytes < MOST_BYTES and call('HGET', flow, 'd:' .. step)
        bytes = bytes + (what and #what or 0)
        out[#out + 1] = step
        out[#out + 1] = what
        out[#out + 1] = what and given or NONE
    end
    return {state, live, out}, changed
end

local answer, any_changed, at = {}, false, FIRST
for i, key in ipairs(KEYS) do
    flow = key
    local steps, first = {}, at
    for _ = 1, tonumber(ARGV[first]) do
        local size = ARGV[at + 3] == 'r' and 2 or 1
        local last = at + 4 + size * tonumber(ARGV[at + 4])
        for j = at + 5, last, size do
            steps[#steps + 1] = ARGV[j]
        end
        at = last
    end
    at = at + 1
    local changed
    answer[i], changed = go_on(first, steps)
    any_changed = any_changed or changed
end
return reply_again(answer, any_changed)
