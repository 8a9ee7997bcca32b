-- Notes that jobs of a workflow have ended, or wait again after their end: the list `notes` of the queue, which is read
-- by whoever makes the following steps (workflows/engine.py).  The note is made by the script that moves the job.
--! on demand
--! keys notes seq

-- `lines`: for each job its id, and after a tab its result if a later step needs it.  The number grows with every note
-- of the queue, so that a note that is read late changes nothing.  A key of another type must not keep a job from
-- ending: what is noted nowhere is found by the check of each workflow.
local function note_steps(workflow, state, lines)
    local number = redis.pcall('INCRBY', seq, 1)
    number = type(number) == 'table' and now or number
    local head = string.format('%.0f:%.0f:', number, now) .. state .. ':' .. workflow
    redis.pcall('RPUSH', notes, head .. '\n' .. table.concat(lines, '\n'))
end

-- One job has ended in `state`; "live": it waits again, after its end.
local function note_step(state, id, controls)
    if controls and type(controls.workflow) == 'string' then
        note_steps(controls.workflow, state, {id})
    end
end
