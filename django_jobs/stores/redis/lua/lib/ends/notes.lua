-- Notes that jobs of a workflow have ended, or wait again after their end: the list `notes` of the queue, which is read
-- by whoever makes the following steps (workflows/engine.py).  The note is made by the script that moves the job.
--! on demand
--! keys notes seq

-- `steps`: workflow → for each job its id, and after a tab its result if a later step needs it.  The number grows with
-- every note of the queue, so that a note that is read late changes nothing.  A key of another type must not keep a job
-- from ending: what is noted nowhere is found by the check of each workflow.
local function note_steps(state, steps)
    local entries, n, head = {}, 0, string.format(':%.0f:', now) .. state .. ':'
    for workflow, lines in pairs(steps) do
        n = n + 1
        entries[n] = head .. workflow .. '\n' .. table.concat(lines, '\n')
    end
    if n == 0 then
        return
    end
    local number = redis.pcall('INCRBY', seq, n)
    number = (type(number) == 'table' and now or number) - n
    for i = 1, n do
        entries[i] = string.format('%.0f', number + i) .. entries[i]
    end
    for first = 1, n, 1000 do
        redis.pcall('RPUSH', notes, unpack(entries, first, math.min(first + 999, n)))
    end
end

-- One job has ended in `state`; "live": it waits again, after its end.
local function note_step(state, id, controls)
    if controls and type(controls.workflow) == 'string' then
        note_steps(state, {[controls.workflow] = {id}})
    end
end
