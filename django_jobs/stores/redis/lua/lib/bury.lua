-- → dead, with the attempt that says why.
--! use record count finish log failed

local function bury(id, record, controls, attempt, signature, archiving, holder)
    log_attempt(id, attempt)
    finish('dead', id, record, controls, archiving, holder)
    failed.enter('dead', id, now, record, signature)
    count('dead', 1)
    count('dead:' .. name_of(record or ''), 1)
    count_minute('dead', 1)
end
