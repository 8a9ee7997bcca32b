"""How a parent sends signals about jobs that died: receivers may wait for a database, and the parent must not.

The parent keeps its events in order and gives them to its maintenance process, which reports for each event when it
begins to send it and when it has sent it.  An event whose sending has begun is not given again, so no receiver is
called twice.  If the maintenance process dies, the next one gets the events whose sending had not begun.
"""

from __future__ import annotations

import logging
from collections import deque
from queue import SimpleQueue
from threading import Thread
from time import monotonic

from django_jobs.events.signal_events import SignalEvent, from_words, send, to_words
from django_jobs.runtime import database_connections
from django_jobs.runtime.faults import faults_end_process
from django_jobs.worker.ipc import IpcChannel
from django_jobs.worker.messages import SendSignal, SignalBegun, SignalSent

logger = logging.getLogger("django_jobs.worker")

#: Most events that may wait.  More of them would mean that a receiver hangs while jobs die, and would fill the memory.
MOST = 1000
#: Most events that a maintenance process has been given and has not begun: its channel must keep room for other
#: messages.
AT_ONCE = 20


class UnsentSignals:
    """The parent's side: the events that are not sent yet."""

    def __init__(self) -> None:
        self._waiting: deque[SignalEvent] = deque()
        #: how many of them, from the first on, this maintenance process was given; whether it is sending one now.
        self._given, self._telling = 0, False
        #: monotonic: when the first event was added, or when sending last made progress.
        self.moved_at = 0.0

    def __bool__(self) -> bool:
        return self._telling or bool(self._waiting)

    def add(self, signal_event: SignalEvent) -> None:
        """Add an event to the end.  If too many wait, log an error and drop it."""
        if not _has_room(len(self._waiting), signal_event):
            return
        if not self:
            self.moved_at = monotonic()
        self._waiting.append(signal_event)

    def give(self, channel: IpcChannel) -> None:
        """Give the maintenance process at the other end as many events as its channel has room for."""
        while self._given < min(len(self._waiting), AT_ONCE):
            if not channel.send(SendSignal(to_words(self._waiting[self._given]))):
                break
            self._given += 1

    def begun(self) -> None:
        """The maintenance process begins to send the first event."""
        self._telling, self.moved_at = True, monotonic()
        self._waiting.popleft()
        self._given -= 1

    def sent(self) -> None:
        """The maintenance process has sent that event."""
        self._telling, self.moved_at = False, monotonic()

    def maintenance_died(self) -> None:
        """The next maintenance process gets the events that this one had not begun."""
        self._given, self._telling = 0, False


class SignalSender:
    """The maintenance process's side: a separate thread, because receivers may block it."""

    def __init__(self, channel: IpcChannel) -> None:
        self.channel = channel
        #: each event, and whether it came from the parent, which is then told when it is sent.
        self._signal_events: SimpleQueue[tuple[SignalEvent, bool]] = SimpleQueue()
        #: monotonic: when the sending of the current event began; None while there is none.
        self.since: float | None = None
        self.thread = Thread(target=self._run, name="signal sender", daemon=True)

    def take(self, message: SendSignal) -> None:
        """Send an event that came from the parent."""
        self._signal_events.put((from_words(message.signal_event), True))

    def deliver(self, signal_event: SignalEvent) -> None:
        """Send an event of this process.  If too many wait, log an error and drop it."""
        if _has_room(self._signal_events.qsize(), signal_event):
            self._signal_events.put((signal_event, False))

    def _run(self) -> None:
        with faults_end_process():
            while True:
                self._send(*self._signal_events.get())

    def _send(self, signal_event: SignalEvent, is_parents: bool) -> None:
        self.since = monotonic()
        if is_parents:
            self.channel.send(SignalBegun())
        database_connections.before_job()
        send(signal_event)
        database_connections.after_job()
        if is_parents:
            self.channel.send(SignalSent())
        self.since = None


def _has_room(waiting: int, signal_event: SignalEvent) -> bool:
    """Tell whether one more event may wait; log an error if not."""
    if waiting < MOST:
        return True
    logger.error("Receivers do not keep up: %s of job %s is not sent", signal_event.signal, signal_event.id)
    return False
