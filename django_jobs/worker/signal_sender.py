"""How signals about jobs that died get out of a parent: receivers may wait for a database, a parent must not.

The parent keeps its events in order and gives them to its maintenance process.  That says of each event when it begins
to send it, and when it has sent it.  An event that was begun is not given again: no receiver is called twice.  An event
that was not begun when the maintenance process died goes to the next one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

from django_jobs.events.signal_events import SignalEvent, from_words, send, to_words
from django_jobs.runtime import database_connections
from django_jobs.runtime.faults import end_process
from django_jobs.worker.ipc import Channel

logger = logging.getLogger("django_jobs.worker")

#: SignalEvents that wait; more mean that a receiver hangs while jobs go on dying, and memory is not for that.
MOST = 1000
#: Events that a maintenance process has been given and has not begun: its channel keeps room for other messages.
AT_ONCE = 20


class SignalOutbox:
    """The parent's side."""

    def __init__(self) -> None:
        self._waiting: deque[SignalEvent] = deque()
        #: how many of the first of them this maintenance process was given; is it sending one now?
        self._given, self._telling = 0, False
        #: monotonic: when something last happened to them.
        self.moved_at = 0.0

    def __bool__(self) -> bool:
        return self._telling or bool(self._waiting)

    def add(self, signal_event: SignalEvent) -> None:
        """Its turn comes after those before it."""
        if len(self._waiting) >= MOST:
            logger.error("Receivers do not keep up: %s of job %s is not sent", signal_event.signal, signal_event.id)
            return
        if not self:
            self.moved_at = monotonic()
        self._waiting.append(signal_event)

    def give(self, channel: Channel) -> None:
        """Give the maintenance process at the other end what it has room for."""
        while self._given < min(len(self._waiting), AT_ONCE):
            if not channel.send({"do": "announce", "notice": to_words(self._waiting[self._given])}):
                break
            self._given += 1

    def hear(self, word: str) -> None:
        """What the maintenance process says of the first of them: "telling", then "told"."""
        self._telling, self.moved_at = word == "telling", monotonic()
        if self._telling:
            self._waiting.popleft()
            self._given -= 1

    def maintenance_died(self) -> None:
        """What it had not begun is for the next."""
        self._given, self._telling = 0, False


class SignalSender:
    """The maintenance process's side: a thread of its own, because receivers may hold it up."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        #: each with whether it is the parent's, who wants to hear of it.
        self._signal_events: SimpleQueue[tuple[SignalEvent, bool]] = SimpleQueue()
        #: monotonic: since when it is at work; None while it waits.
        self.since: float | None = None
        self.thread = Thread(target=self._run, name="signal sender", daemon=True)

    def take(self, words: Mapping[str, Any]) -> None:
        """A notice of the parent's."""
        self._signal_events.put((from_words(words), True))

    def deliver(self, signal_event: SignalEvent) -> None:
        """A notice of the maintenance process's own."""
        if self._signal_events.qsize() >= MOST:
            logger.error("Receivers do not keep up: %s of job %s is not sent", signal_event.signal, signal_event.id)
            return
        self._signal_events.put((signal_event, False))

    def _run(self) -> None:
        try:
            while True:
                self._send(*self._signal_events.get())
        except BaseException:
            end_process()

    def _send(self, signal_event: SignalEvent, is_parents: bool) -> None:
        self.since = monotonic()
        if is_parents:
            self.channel.send({"is": "telling"})
        database_connections.before_job()
        send(signal_event)
        database_connections.after_job()
        if is_parents:
            self.channel.send({"is": "told"})
        self.since = None
