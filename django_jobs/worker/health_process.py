"""`runworkers --http`: a process that answers the probes of a worker, /livez and /readyz, and /metrics.

The parent must not wait for a client, and has no threads, because it forks.  Therefore it only writes into memory that
this process shares: when it last completed a turn of its loop, and what is wrong.  A parent that hangs writes nothing,
which this process sees.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import signal
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from time import monotonic, sleep
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured

from django_jobs import metrics
from django_jobs.core.queue_stats import QueueStats
from django_jobs.exceptions import StoreError
from django_jobs.operations.diagnosis import problems_of
from django_jobs.remote import left_to_pull_workers
from django_jobs.runtime import forks
from django_jobs.stores.redis import Store
from django_jobs.worker.os_signals import STOPS, die_with_parent

logger = logging.getLogger("django_jobs.worker")

#: Seconds without a turn after which the parent counts as hanging.  One call to the store may take five.
HANGS = 20.0
#: Seconds between two questions to the store about what waits, and until an answer is too old to be used.
ASK, STALE = 5.0, 30.0
#: Bytes of one text; two of them follow the first word.
_TEXT, _WORD = 4096, 8


class Board:
    """What the parent writes and this process reads: memory that both share, made before the fork.

    There is no lock, because the parent may be stopped at any line.  The parent writes a new text where the last one is
    not, and then one word: when it wrote (ms, monotonic), and which of the two texts is the last.  The processor writes
    a word at once, so a reader has the last word and a text that is complete."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, _WORD + 2 * _TEXT))
        self._word, self._texts = memory[:_WORD].cast("Q"), memory[_WORD:]
        self._written, self._place = b"", 0
        self.write([], [])

    def write(self, live: list[str], ready: list[str]) -> None:
        """Note a turn of the loop, what should end the worker, and what only keeps it from working now."""
        text = json.dumps([live[:5], ready[:5]]).encode()
        if len(text) >= _TEXT:
            text = json.dumps([["There are problems, with long names."] if live else [], []]).encode()
        if text != self._written:
            self._written, self._place = text, 1 - self._place
            begin = self._place * _TEXT
            self._texts[begin : begin + len(text) + 1] = text + b"\0"
        self._word[0] = int(monotonic() * 1000) * 2 + self._place

    def read(self) -> tuple[list[str], list[str]]:
        """Return both lists; a parent that hangs is in the first."""
        turned_at, place = divmod(self._word[0], 2)
        text = bytes(self._texts[place * _TEXT : (place + 1) * _TEXT]).partition(b"\0")[0]
        try:
            live, ready = json.loads(text)
        except ValueError:  # this process was held up here while the parent wrote two texts
            return self.read()
        silence = monotonic() - turned_at / 1000
        return ([f"The worker has hung for {silence:.0f} s.", *live] if silence > HANGS else live), ready


class StoreWatch:
    """Asks the store, on a thread of its own, whether this worker leaves jobs waiting: a probe waits for no store."""

    def __init__(self, store: Store, name: str, queues: Sequence[str]) -> None:
        self.store, self.name, self.queues = store, name, queues
        self._found: list[str] = []
        self._at = 0.0

    def problems(self) -> list[str]:
        """Return what the last answer said, unless it is too old."""
        return self._found if monotonic() - self._at < STALE else []

    def run(self) -> NoReturn:
        while True:
            try:
                self._ask()
            except StoreError as error:
                logger.debug("The health of %s could not be checked in the store: %s", self.name, error)
            except Exception:
                logger.exception("A fault in the check of this worker's health; it is tried again")
            sleep(ASK)

    def _ask(self) -> None:
        mine = [worker for worker in self.store.workers() if worker.name == self.name]
        if mine:
            stats: list[QueueStats] = self.store.stats(self.queues)
            here = mine[0]._replace(info={**mine[0].info, "problems": []})  # the board has newer ones
            self._found = problems_of(here, stats, self.store.now(), left_to_pull_workers(self.queues))
            self._at = monotonic()


class Probes(ThreadingHTTPServer):
    """The server of one worker."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], board: Board, watch: StoreWatch) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.board, self.watch = board, watch
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Probes
    server_version = "django_jobs"
    sys_version = ""
    #: seconds that a client may take for a request.
    timeout = 10

    def do_GET(self) -> None:
        answers: dict[str, Callable[[], None]] = {
            "/livez": lambda: self._probe(ready=False),
            "/readyz": lambda: self._probe(ready=True),
            "/metrics": self._metrics,
        }
        answers.get(self.path.partition("?")[0], lambda: self._answer(404, b"not found\n"))()

    do_HEAD = do_GET

    def _probe(self, *, ready: bool) -> None:
        live, not_ready = self.server.board.read()
        problems = [*live, *self.server.watch.problems(), *(not_ready if ready else ())]
        body = {"status": "unhealthy" if problems else "ok", "problems": problems}
        self._answer(503 if problems else 200, json.dumps(body).encode() + b"\n", "application/json")

    def _metrics(self) -> None:
        try:
            self._answer(200, metrics.text(), metrics.CONTENT_TYPE)
        except ImproperlyConfigured as error:
            self._answer(501, f"{error}\n".encode())

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("Probe: " + format, *args)


def run_probes(address: tuple[str, int], board: Board, watch: StoreWatch, parent: int) -> NoReturn:
    """Serve until the parent ends this process; never returns into the parent's code."""
    try:
        for number in (signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        for number in (*STOPS, signal.SIGINT):  # the parent decides when this process ends
            signal.signal(number, lambda number, frame: None)
        forks.guard(lambda: None)
        die_with_parent(parent)
        server = Probes(address, board, watch)
        threading.Thread(target=watch.run, name="health", daemon=True).start()
        server.serve_forever()
    except BaseException:
        logger.critical("The process that answers probes failed", exc_info=True)
    finally:
        logging.shutdown()
        os._exit(1)
