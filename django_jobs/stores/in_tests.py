"""The stores of a test run: in memory, one for each test, so that no test reaches the store of the project."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from django.core import mail

from django_jobs.runtime.scopes import IsolationScope, scopes
from django_jobs.stores.embedded.store import MemoryStore
from django_jobs.stores.values.options import StoreOptions

_lock = Lock()
#: For what is enqueued outside of pytest's scopes, and the list of mails that was in use then.
_base, _outbox = IsolationScope(), None

#: Copies the keys ARGV[3…] of the namespace ARGV[1] to the namespace ARGV[2].
_COPY = """
for i = 3, #ARGV do
  redis.call('COPY', ARGV[i], '{' .. ARGV[2] .. string.sub(ARGV[i], #ARGV[1] + 2))
end
"""


class TestStore(MemoryStore):
    """A store that stays when settings change in the middle of a test, and ends with the test."""

    def close(self) -> None:
        """Do nothing: closing a store in memory would delete the test's jobs."""

    def copy(self, other: TestStore) -> None:
        """Take over all jobs of another store, in place of those that are here."""
        self.really_close()
        if keys := other.all_keys():
            names = other.keys.namespace, self.keys.namespace
            self.transport.client.eval(_COPY, 0, *names, *keys)

    def really_close(self) -> None:
        """Close the store at the end of the test."""
        super().close()


def store_of_test(options: StoreOptions) -> TestStore:
    """Return the store of the innermost scope, made at first use.  It begins with the jobs of the scopes around it, as
    a test's database begins with the rows of setUpTestData."""
    global _base, _outbox
    with _lock:
        outbox = getattr(mail, "outbox", None)
        if not scopes and outbox is not _outbox:
            # Django gives every test a new list of mails: it is the only sign of a new test under its runner.
            _base.close()
            _base, _outbox = IsolationScope(), outbox
        around = [_base, *scopes]
        innermost = around[-1]
        if innermost.store is None:
            innermost.store = TestStore(options)
            for outer in reversed(around[:-1]):
                if outer.store is not None:
                    innermost.store.copy(outer.store)
                    break
        store: TestStore = innermost.store
        # They may have changed with the settings; the namespace stays.
        store.options = replace(options, namespace=store.options.namespace)
        return store
