-- archive_done: remove the first entries of the outbox, which the archiver has written
--
-- ARGV  1 clock   2 how many   3 SHA-1 of the first of them   4 SHA-1 of the last
-- Does nothing unless these are the first entries: another archiver was faster, or the server has lost its last second.
-- Returns nothing.
--! keys archive
local number = tonumber(ARGV[2])
local first, last = redis.call('LINDEX', archive, 0), redis.call('LINDEX', archive, number - 1)
if first and last and redis.sha1hex(first) == ARGV[3] and redis.sha1hex(last) == ARGV[4] then
    redis.call('LTRIM', archive, number, -1)
end
