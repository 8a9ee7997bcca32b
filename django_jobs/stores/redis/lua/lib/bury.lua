-- → dead, with the attempt that says why.
--! use record count finish log

local function bury(id, record, controls, attempt, archiving, holder)
    log_attempt(id, attempt)
    finish('dead', id, record, controls, archiving, holder)
    count('dead', 1)
    count('dead:' .. name_of(record or ''), 1)
    count_minute('dead', 1)
end
