"""What one thread reads of a store while another one changes it: no error, and nothing of another process."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from django_jobs import stores
from django_jobs.stores.redis.connection.part import MOST_UNANSWERED, Channel, Channels
from django_jobs.stores.redis.connection.transport import Transport


def in_a_thread(do: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(do).result(60)


def test_a_client_is_there_though_another_thread_closes_the_store() -> None:
    class Closed(Transport):
        """`close` comes after each look at the client."""

        kept: redis.Redis | None = None

        @property
        def _client(self) -> redis.Redis | None:
            found, self.kept = self.kept, None
            return found

        @_client.setter
        def _client(self, client: redis.Redis | None) -> None:
            self.kept = client

    transport = Closed(redis.ConnectionPool(), "nowhere")
    first = redis.Redis(connection_pool=transport.pool)
    transport.kept = first
    assert transport.client is first


@pytest.mark.accepts("P19")
@pytest.mark.parametrize("line", [1, 2, 3, 4])
def test_no_thread_of_a_fork_takes_a_channel_of_the_parent_process(line: int) -> None:
    """Its number would be one that the parent uses, too, and the server would answer with the answer to the parent.

    The other thread begins a call when the first one, which forgets the parent's channels, comes to this line."""
    channels = Channels()
    of_parent = channels.begin("default")
    channels.answered(of_parent)
    channels._pid = -1  # as after a fork
    taken: list[Channel] = []
    lines = itertools.count(1)

    def before_each_line(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code is Channels._forget.__code__:
            if event == "line" and next(lines) == line:
                taken.append(in_a_thread(lambda: channels.begin("default")))
            return before_each_line
        return None

    before = sys.gettrace()
    sys.settrace(before_each_line)
    try:
        taken.append(channels.begin("default"))
    finally:
        sys.settrace(before)
    assert len(taken) == 2
    assert of_parent not in taken


def test_a_call_is_given_up_while_another_thread_notes_its_own() -> None:
    class Busy(dict[Any, list[Channel]]):
        """Another thread adds to it after an iteration has begun."""

        def __iter__(self) -> Iterator[Any]:
            iterator = super().__iter__()
            self["another"] = []
            return iterator

    channels = Channels()
    channels._unanswered = Busy({number: [Channel("default")] for number in range(MOST_UNANSWERED)})
    channels.unanswered(Channel("default"), lambda: "mine")
    assert channels._unanswered.get(0) is None, "the oldest"
    assert len(channels._idle["default"]) == 1


def test_a_store_that_new_settings_close_is_not_given_to_another_thread() -> None:
    class Closing:
        seen: object = "not closed"

        def close(self) -> None:
            self.seen = stores._current

    store: Any = Closing()
    stores.use_store(store)
    stores._reset(setting="DJANGO_JOBS")
    assert store.seen is None
