"""How `wait()` learns that a job has ended: one thread per queue and process listens for all waiting callers.

All waiting processes read one stream of the queue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any

from django_jobs.core.values import FINISHED
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.redis.connection.entries import texts
from django_jobs.stores.redis.lists import Lists
from django_jobs.stores.values.answers import End
from django_jobs.stores.values.sizes import chunks

#: Jobs in one call.
AT_ONCE = 500
#: Jobs in one call that reads them with their results, each of which may have MAX_PAYLOAD bytes.
WHOLE_AT_ONCE = 100
#: Seconds that one call listens.
LISTENING = 2.0
#: Seconds after which the list of awaited jobs is sent again: the store may have lost it.
AGAIN = 15.0
#: Seconds between two checks while the store cannot be reached, or refuses the list (a user with read access only).
PAUSE = 0.25


class Ends(Lists):
    """Reports when jobs end."""

    def watch_ends(self, queue: str, ids: Sequence[str]) -> tuple[Any, list[str]]:
        """Tell the store that the ends of these jobs (at most AT_ONCE) are waited for: it reports them, and keeps each
        job for a minute after its end.

        Returns the position to begin listening at, and the ids of jobs that have ended or are not in the store."""
        last, *over = self._run("watch", queue, *ids)
        return last, texts(over)

    def next_ends(self, queue: str, after: Any, timeout: float) -> tuple[list[str], Any]:
        """Block up to `timeout` seconds until jobs end that are waited for.

        Returns the ids that ended, perhaps with others, and the position to continue at."""
        name = self.keys.of(queue)["ends"]
        block = max(1, round(timeout * 1000))
        told = self.transport.blocking(timeout, "XREAD", "COUNT", 1000, "BLOCK", block, "STREAMS", name, after)
        entries = told[0][1] if told else []
        # The cluster client returns the fields as a dict.
        ended = [(fields.get(b"id", b"") if isinstance(fields, dict) else fields[1]) for _, fields in entries]
        return texts(ended), entries[-1][0] if entries else after

    def end_of(self, queue: str, id: str) -> End:
        """Return a future for the end of that job, without a call of the store: a caller's time limit holds however
        long the store takes.  A caller that no longer waits cancels the future."""
        kept: tuple[int, dict[str, Listener]] | None = self.__dict__.get("_listeners")
        if kept is None or kept[0] != os.getpid():  # threads do not exist in a copy of the process
            kept = self.__dict__["_listeners"] = os.getpid(), {}
        return kept[1].setdefault(queue, Listener(self, queue)).end_of(id)


class Listener:
    """Listens for the ends of one queue's jobs while a caller in this process waits for one."""

    def __init__(self, store: Ends, queue: str) -> None:
        self._store, self._queue = store, queue
        self._lock = Lock()
        self._waiting: dict[str, list[End]] = {}
        self._thread: Thread | None = None
        #: Ids that were added while the thread listened, and the thread that tells the store of them.
        self._untold: list[str] = []
        self._teller: Thread | None = None
        #: The store knows all jobs that are waited for, except the untold.
        self._is_known = False

    def end_of(self, id: str) -> End:
        """See Ends.end_of."""
        end: End = Future()
        with self._lock:
            self._waiting.setdefault(id, []).append(end)
            if self._thread is None:  # it tells the store all ids before it listens
                self._thread = self._started(self._listen)
            else:
                self._untold.append(id)
                self._teller = self._teller or self._started(self._tell)
        return end

    def _started(self, work: Callable[[], None]) -> Thread:
        thread = Thread(target=self._run, args=(work,), name=f"ends of {self._queue}", daemon=True)
        thread.start()
        return thread

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            with self._lock:
                self._thread = self._teller = None
                left = [end for ends in self._waiting.values() for end in ends]
                self._waiting.clear()
                self._untold.clear()
            for end in left:
                if end.set_running_or_notify_cancel():
                    end.set_exception(error)

    def _tell(self) -> None:
        while ids := self._new():
            try:
                self._answer(self._store.watch_ends(self._queue, ids)[1])
            except StoreError:
                # The listening thread meets the same error, and tells the store all ids when it is over.
                self._is_known = False

    def _new(self) -> list[str]:
        with self._lock:
            ids, self._untold = self._untold[:AT_ONCE], self._untold[AT_ONCE:]
            if not ids:
                self._teller = None
            return ids

    def _listen(self) -> None:
        after, told_at = None, 0.0
        self._is_known = False
        while self._goes_on():
            try:
                if not self._is_known or monotonic() - told_at > AGAIN:
                    self._is_known, told_at = True, monotonic()
                    after = self._tell_of_all()
                ended, after = self._store.next_ends(self._queue, after, LISTENING)
                self._answer(ended)
            except StoreUnavailable:
                self._is_known = False
                sleep(PAUSE)
            except StoreError:
                # The store may refuse the list, or have no memory for it: then read the jobs instead.
                self._is_known = False
                sleep(PAUSE)
                self._look()

    def _goes_on(self) -> bool:
        with self._lock:
            for id, ends in list(self._waiting.items()):
                left = [end for end in ends if not end.done()]
                if left:
                    self._waiting[id] = left
                else:
                    del self._waiting[id]
            if not self._waiting:
                self._thread = None
            return bool(self._waiting)

    def _waited(self) -> list[str]:
        with self._lock:
            return list(self._waiting)

    def _tell_of_all(self) -> Any:
        """Returns the position that the first call gave: ends may be reported between it and the last call."""
        after, told = None, set[str]()
        while new := [id for id in self._waited() if id not in told]:
            for some in chunks(new, AT_ONCE):
                first, over = self._store.watch_ends(self._queue, some)
                after = first if after is None else after
                self._answer(over)
            told.update(new)
        return after

    def _look(self) -> None:
        for some in chunks(self._waited(), AT_ONCE):
            try:
                found = {info.id: info.state for info in self._store.get_many(self._queue, some)}
            except StoreUnavailable:
                return
            self._answer([id for id in some if id not in found or found[id] in FINISHED])

    def _answer(self, ids: Sequence[str]) -> None:
        with self._lock:
            ours = [id for id in ids if id in self._waiting]
        for some in chunks(ours, WHOLE_AT_ONCE):
            infos = {info.id: info for info in self._store.get_many(self._queue, some, whole=True)}
            with self._lock:
                ends = [(end, infos.get(id)) for id in some for end in self._waiting.pop(id, ())]
            for end, info in ends:
                if not end.done() and end.set_running_or_notify_cancel():
                    end.set_result(info)
