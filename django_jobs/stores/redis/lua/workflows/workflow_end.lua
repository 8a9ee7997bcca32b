-- workflow_end: what the ends of steps mean for their workflow or batch: which steps may start, and how it stands
--
-- Long because it is one transition: everything that the end of a step means for the steps after it, and for callbacks.
--
-- KEYS  1 the workflow (see "A workflow" in docs/contributing/internals.md)
-- ARGV  1 clock   2 "" | "close": the batch gets no more jobs | "stop": what has not started never starts
--       | "started": all its first steps are in the store, and of a batch these callbacks
--       then per end: step, number of its note ("=n": only if n is the number of the last one), state, result or ""
--
-- A note that is read again changes nothing, and returns again what may start because of it.  The caller enqueues that:
-- its ids are derived from workflow and step, and no id is enqueued twice.
--
-- Returns {state ("" = there is no such workflow), steps started and not ended, {step, what to enqueue,
--          {step, its result, …}, …}}.  Where these would be too long, false instead of what to enqueue: the caller reads it.
--! use clock
local MOST_BYTES = 1024 * 1024
local flow, verb = KEYS[1], ARGV[2]
local call, match, format = redis.call, string.match, string.format
local BAD = {dead = 1, cancelled = 1, expired = 1, deleted = 1}
local ENDED = {succeeded = true, dead = true, cancelled = true, expired = true, deleted = true}

local kind, closed, stopped, following, wanting = unpack(
    call('HMGET', flow, 'kind', 'closed', 'stopped', 'x', 'wanting')
)
if not kind then
    return {'', 0, {}}
end
local is_batch = kind == 'batch'

local delta = {} -- counter → its change
local function bump(counter, by)
    delta[counter] = (delta[counter] or 0) + by
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

local keys = {}
for i = 3, #ARGV, 4 do
    keys[#keys + 1] = ARGV[i]
end
local stands = read('s:', keys) -- step → "number:state", for a batch "number:state:queue"
local nexts = is_batch and {} or read('x:', keys) -- false: as most steps, in the field `x`
local lists = {}
local function next_of(step)
    local text = nexts[step]
    if text == nil then
        text = call('HGET', flow, 'x:' .. step)
    end
    text = text or following or ''
    if not lists[text] then
        lists[text] = {}
        for m in string.gmatch(text, '%d+') do
            table.insert(lists[text], m)
        end
    end
    return lists[text]
end

local final = {} -- field → its new value; false: it goes
local function put(field, value)
    final[field] = value
end

local touched, good, ill = {}, {}, {} -- steps that wait for the ones that ended; what changed for them
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

local again, first_ends = {}, {} -- steps that were started before by one of these notes; steps that ended
for i = 3, #ARGV, 4 do
    local step, number, state, result = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local stand = stands[step]
    local last, old, rest = match(stand or '', '^(%d+):(%a+)(.*)$')
    last, old = tonumber(last) or 0, old or 'live'
    local expected = tonumber(match(number, '^=(%d+)$') or '')
    local late = expected and (expected ~= last or old == state) or not expected and tonumber(number) <= last
    if verb == 'started' then
        put('b:' .. step, '2')
    elseif is_batch and (not stand or old == 'none') then -- not a job of this batch
    elseif old == 'succeeded' or late then
        again[#again + 1] = step
    else
        local value = format('%.0f:', expected and last or tonumber(number)) .. state .. (rest or '')
        stands[step] = value
        put('s:' .. step, value)
        moves(step, old, state)
        if ENDED[state] then
            first_ends[#first_ends + 1] = step
            if state == 'succeeded' and result ~= '' then
                put('r:' .. step, string.sub(result, 2))
            end
        end
    end
end

-- A step that has ended needs its record no more, nor the results that it named.
local function let_go(steps)
    for _, step in ipairs(steps) do
        put('d:' .. step, false)
    end
    if not wanting then
        return
    end
    for step, wants in pairs(read('w:', steps)) do
        if wants then
            put('w:' .. step, false)
            for n in string.gmatch(wants, '%d+') do
                if call('HINCRBY', flow, 'u:' .. n, -1) <= 0 then
                    put('u:' .. n, false)
                    put('r:' .. n, false)
                end
            end
        end
    end
end
if not is_batch and #first_ends > 0 then
    let_go(first_ends)
end

local ready, is_ready = {}, {}
local function start(step)
    if not is_ready[step] then
        is_ready[step] = true
        ready[#ready + 1] = step
    end
end

if verb == 'stop' then
    stopped = '1'
    put('stopped', '1')
elseif verb == 'started' then
    put('started', '1')
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
        put('l:' .. step, format('%d:%d:%s%s', left, bad, policy, off and '!' or ''))
    end
end
while #touched > 0 do
    local wave = touched
    touched = {}
    local waits = read('l:', wave)
    for _, step in ipairs(wave) do
        look_at(step, final['l:' .. step] == nil and waits[step] or final['l:' .. step])
    end
end

local writes, dropped = {}, {}
for field, value in pairs(final) do
    if value then
        writes[#writes + 1] = field
        writes[#writes + 1] = value
    else
        dropped[#dropped + 1] = field
    end
end
for first = 1, #writes, 2000 do
    call('HSET', flow, unpack(writes, first, math.min(first + 1999, #writes)))
end
for first = 1, #dropped, 2000 do
    call('HDEL', flow, unpack(dropped, first, math.min(first + 1999, #dropped)))
end
local changed = #writes > 0
for counter, by in pairs(delta) do
    if by ~= 0 then
        call('HINCRBY', flow, counter, by)
        changed = true
    end
end
if verb == 'close' and not closed then
    call('HSET', flow, 'closed', '1')
    closed, changed = '1', true
end

local total, live, succeeded, dead, before, ended, firsts, started = unpack(
    call('HMGET', flow, 'total', 'live', 'succeeded', 'dead', 'state', 'ended', 'firsts', 'started')
)
total, live, succeeded, dead = tonumber(total), tonumber(live) or 0, tonumber(succeeded) or 0, tonumber(dead) or 0
local over = live == 0 and (not is_batch or closed or stopped)
local state = stopped and 'cancelled' or not over and 'running' or succeeded == total and 'succeeded' or 'stopped'

-- The callbacks of a batch; each starts once.
if is_batch and not stopped then
    local due = {on_dead = dead > 0, on_complete = over, on_success = state == 'succeeded'}
    for name, is_due in pairs(due) do
        if call('HEXISTS', flow, 'd:' .. name) == 1 then
            local begun = call('HGET', flow, 'b:' .. name) -- "2": it is in the store
            if is_due and not begun then
                call('HSET', flow, 'b:' .. name, '1')
                start(name)
            elseif begun == '1' and (#again > 0 or verb == 'close') then
                start(name)
            end
        end
    end
end
if not is_batch and not stopped then
    for _, step in ipairs(again) do
        for _, m in ipairs(next_of(step)) do
            if call('HEXISTS', flow, 'l:' .. m) == 0 and call('HEXISTS', flow, 'd:' .. m) == 1 then
                start(m)
            end
        end
    end
end

if changed then
    call('HSET', flow, 'state', state, 'touched', format('%.0f', now))
    local has_ended = over and state ~= 'running'
    if has_ended and not ended then
        call('HSET', flow, 'ended', format('%.0f', now))
    elseif ended and not has_ended then
        call('HDEL', flow, 'ended')
    end
    if firsts and started and verb ~= 'started' then -- the records of the first steps: all of these jobs are in the store
        call('HDEL', flow, 'firsts')
        for i = 0, tonumber(firsts) - 1 do
            call('HDEL', flow, 'f' .. i)
        end
    end
end

local out, bytes = {}, 0
-- The results that the step named, flat.
local function results_for(step)
    local numbers, given = {}, {}
    for n in string.gmatch(wanting and call('HGET', flow, 'w:' .. step) or '', '%d+') do
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
for _, step in ipairs(ready) do
    local given = bytes < MOST_BYTES and results_for(step) or {}
    local what = bytes < MOST_BYTES and call('HGET', flow, 'd:' .. step)
    bytes = bytes + (what and #what or 0)
    out[#out + 1] = step
    out[#out + 1] = what
    out[#out + 1] = what and given or {}
end
return {state, live, out}
