"""The parent's side of its clerk: started, replaced when it dies or falls silent, told what to announce, ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from django_jobs import remote
from django_jobs.events.signal_events import Notice
from django_jobs.worker.ipc import Channel
from django_jobs.worker.maintenance.process import STUCK, run_clerk
from django_jobs.worker.maintenance.tasks import Ticker
from django_jobs.worker.os_signals import kill
from django_jobs.worker.parent.children import Family
from django_jobs.worker.retry import Outage
from django_jobs.worker.signal_sender import Untold

logger = logging.getLogger("django_jobs.worker")

#: Seconds before a clerk that died is replaced, doubling between these; one that lived longer begins anew.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Seconds that a burst waits for a database that holds up a duty or a receiver.
PATIENCE = 10.0


class ClerkWatch:
    """At most one clerk at a time."""

    def __init__(self, family: Family, tickers: Sequence[Ticker]) -> None:
        self.family, self.tickers = family, tickers
        #: 0 while there is none.
        self.pid = 0
        self.channel: Channel | None = None
        #: how many duties of this clerk have worked once.
        self.begun = 0
        self._started = self._heard = self._not_before = 0.0
        self._pause = SHORTEST_PAUSE
        self._spare_until = 0.0
        #: signals that receivers have not been sent.
        self.untold = Untold()
        self._retired = False
        self._no_room = Outage("Starting the clerk")

    def look_after(self, now: float) -> None:
        """Take in what it said; start one if there is none; end one that says nothing any more."""
        if self.pid in self.family.foreign:
            self._died(self.family.foreign.pop(self.pid), now)
        if self.channel is not None:
            self.untold.give(self.channel)
        if not self.pid:
            if now >= self._not_before and (self.untold or not self._retired):
                self._start(now)
        elif now - self._heard > STUCK:
            logger.error("The clerk has said nothing for %d s: it is replaced", int(STUCK))
            self._heard = now
            kill(self.pid)

    def read(self) -> None:
        """Take in what it said."""
        if self.channel is None:
            return
        for message in self.channel.receive():
            self._heard = monotonic()
            match message["is"]:
                case "begun":
                    self.begun += 1
                case "types":
                    self._pass_on(message["at"], message["types"])
                case "telling" | "told" as word:
                    self.untold.hear(word)
        self.untold.give(self.channel)

    def _pass_on(self, at: float, types: list[list[Any]]) -> None:
        """Remote job types, for the children that live, and for those that are forked from us later."""
        remote.learn(at, types)
        for child in self.family:
            child.learn(at, types)

    def fileno(self) -> int | None:
        """What to wait on for its messages."""
        return self.channel.fileno() if self.channel is not None and self.channel.is_open else None

    def has_begun(self, now: float) -> bool:
        """Has every duty worked once?  Said, too, when that takes too long: a database may not answer."""
        return self.begun >= len(self.tickers) or (self.pid != 0 and now - self._started > PATIENCE)

    def announce(self, notice: Notice) -> None:
        """Have its receivers told of it: by this clerk, or by the next."""
        self.untold.add(notice)
        if self.channel is not None:
            self.untold.give(self.channel)

    def has_told(self, now: float) -> bool:
        """Have all receivers been told?  Said, too, when one takes too long."""
        return not self.untold or now - self.untold.moved_at > PATIENCE

    def spare_expired_leases(self, seconds: float) -> None:
        """Have expired leases left alone for that long."""
        self._spare_until = max(self._spare_until, monotonic() + seconds)
        if self.channel is not None:
            self.channel.send({"do": "spare", "seconds": seconds})

    def retire(self) -> None:
        """The worker stops: from now on there is only telling of the jobs that die."""
        self._retired = True
        if self.channel is not None:
            self.channel.send({"do": "retire"})

    def end(self) -> None:
        """End it now: what it does may be cut short anywhere."""
        if self.pid:
            kill(self.pid)

    def wait(self) -> None:
        """After `end`: until it is gone."""
        if not self.pid or self.pid in self.family.foreign:
            return
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return

    def _start(self, now: float) -> None:
        config, store = self.family.config, self.family.store
        tickers = () if self._retired else self.tickers
        try:
            self.pid, self.channel = self.family.fork(partial(run_clerk, store, config, tickers))
        except OSError as error:
            self._not_before = monotonic() + self._no_room.failed(error)
            return
        self._no_room.worked()
        self.begun, self._started, self._heard = 0, now, monotonic()
        if self._retired:
            self.retire()
        if (rest := self._spare_until - monotonic()) > 0:
            self.channel.send({"do": "spare", "seconds": rest})

    def _died(self, status: int, now: float) -> None:
        # What it said before it died: which signals it has begun to send.
        while self.channel is not None and self.channel.is_open and not self.channel.is_dry:
            self.read()
        self.family.forget(self.pid)
        self.pid, self.channel = 0, None
        self.untold.clerk_died()
        if now - self._started > LONGEST_PAUSE:
            self._pause = SHORTEST_PAUSE
        logger.error("The clerk died (status %d)", status)
        self._not_before = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
