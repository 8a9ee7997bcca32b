"""The errors that are remembered beyond their jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, product
from typing import Any

from django_jobs.stores.redis.failures.groups import Groups, pairs_of
from django_jobs.stores.values.errors import KeptError, read_error
from django_jobs.stores.values.sizes import chunks

#: Queues in one round trip, and errors that one call reads: about a second.
QUEUES, MOST_READ = 200, 20_000
#: Queues whose errors come in one round trip.
TOGETHER = 20


class RememberedErrors(Groups):
    """Errors of failed attempts.  These methods only read; lua/lib/ends/errors.lua writes."""

    def errors(
        self, queues: Sequence[str], signatures: Collection[str] | None = None
    ) -> tuple[list[KeptError], list[str]]:
        """Return the errors of these queues, in no order; and the queues that were not read, because there are too many
        errors in all.  `signatures`: only these errors.  Entries that cannot be read are left out."""
        if signatures is not None:
            fields = [signature.encode(errors="replace") for signature in signatures]
            calls: list[Any] = [("HMGET", self.keys.of(queue)["errors"], *fields) for queue in queues if fields]
            replies = [reply for some in chunks(calls, QUEUES) for reply in self.transport.pipeline(some)]
            texts = zip(product(queues, fields), chain.from_iterable(replies), strict=True)
            return [each for place, text in texts if text and (each := read_error(*place, text))], []
        names = {queue: self.keys.of(queue)["errors"] for queue in queues}
        asked = [("HLEN", name) for name in names.values()]
        sizes = [int(size) for some in chunks(asked, QUEUES) for size in self.transport.pipeline(some)]
        wanted, left_out, read = list[str](), list[str](), 0
        for queue, size in zip(names, sizes, strict=True):
            read += size
            if size:
                (wanted if read <= MOST_READ else left_out).append(queue)
        found_errors = list[KeptError]()
        for some in chunks(wanted, TOGETHER):
            replies = self.transport.pipeline([("HGETALL", names[queue]) for queue in some])
            for queue, reply in zip(some, replies, strict=True):
                found_errors += [found for key, value in pairs_of(reply) if (found := read_error(queue, key, value))]
        return found_errors, left_out

    def error_signatures(self, queues: Sequence[str]) -> set[str]:
        """Return the signatures of the errors of these queues, and nothing else of them: few bytes, however many queues
        remember the same errors."""
        found = self._by_script(lambda: [fields for _, fields in self._run_groups("errors", queues)])
        if found is None:
            calls = [("HKEYS", self.keys.of(queue)["errors"]) for queue in queues]
            found = [fields for some in chunks(calls, QUEUES) for fields in self.transport.pipeline(some)]
        return {field.decode(errors="replace") for fields in found for field in fields}
