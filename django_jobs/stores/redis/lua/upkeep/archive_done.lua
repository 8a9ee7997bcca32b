-- archive_done: remove the first entries of the archive's backlog, which the archiver has written
--
-- Arguments: number, then the SHA-1 of the first of them and of the last.
-- Does nothing unless these are the first entries: another archiver was faster, or the server has lost its last second.
-- Returns 1 if they were removed, otherwise 0.
--! answers number
--! args number:int first_sha last_sha
--! keys archive
local first, last = redis.call('LINDEX', archive, 0), redis.call('LINDEX', archive, number - 1)
if first and last and redis.sha1hex(first) == first_sha and redis.sha1hex(last) == last_sha then
    redis.call('LTRIM', archive, number, -1)
    return reply(1, true)
end
return reply(0)
