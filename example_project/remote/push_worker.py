"""A push worker without Django or any library: accepts jobs over HTTP, runs them, and reports how they ended.

    JOBS_URL=http://localhost:8000/jobs JOBS_TOKEN=djt_… python push_worker.py 8001

Its job computes a thumbnail's size: {"width": 4000, "height": 3000} → {"width": 320, "height": 240}.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Full, Queue
from threading import Thread
from typing import Any

JOBS_URL = os.environ["JOBS_URL"].rstrip("/")
JOBS_TOKEN = os.environ["JOBS_TOKEN"]
#: user:password that django_jobs sends (API["CREDENTIALS"]); if empty, every caller is accepted.
EXPECTED = os.environ.get("PUSH_CREDENTIALS", "")
#: Maximum jobs that wait here.  Above it the answer is 503, and django_jobs tries again: waiting is the queue's task.
ROOM = 50
#: Seconds after which a report is given up: its attempt will have failed by time-out.
GIVE_UP_AFTER = 60.0

waiting: Queue[dict[str, Any]] = Queue(ROOM)


class Handler(BaseHTTPRequestHandler):
    """Accepts a job, or answers that there is no room."""

    def do_POST(self) -> None:
        job = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.answer(job))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, job: bytes) -> int:
        wanted = "Basic " + b64encode(EXPECTED.encode()).decode()
        if EXPECTED and not hmac.compare_digest(wanted, self.headers.get("Authorization", "")):
            return 401
        try:
            waiting.put_nowait(json.loads(job))
        except Full:
            return 503
        except ValueError:
            return 400
        return 202

    def log_message(self, *args: Any) -> None:
        """Log nothing: the reports are the log."""


def work_forever() -> None:
    """Run jobs, in one thread."""
    while True:
        job = waiting.get()
        try:
            report(job, {"status": "succeeded", "result": thumbnail(**job["data"])})
        except (TypeError, KeyError, ZeroDivisionError) as error:
            # The data is wrong, so another attempt would fail, too.
            report(job, {"status": "failed", "retryable": False, "error": repr(error)})


def thumbnail(width: int, height: int, longest: int = 320) -> dict[str, int]:
    """Compute the size."""
    scale = longest / max(width, height)
    return {"width": round(width * scale), "height": round(height * scale)}


def report(job: dict[str, Any], end: dict[str, Any]) -> None:
    """Report how the job ended, and repeat until it is accepted: a report may be sent twice."""
    body = json.dumps({**end, "attempt": job["attempt"], "token": job["token"]}).encode()
    headers = {"Authorization": f"Bearer {JOBS_TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{JOBS_URL}/v1/jobs/{job['name']}/{job['id']}", body, headers, method="POST")
    deadline, pause = time.monotonic() + GIVE_UP_AFTER, 0.2
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(request, timeout=10).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                # 409 means that the attempt is over.  Repeating does not help with other 4xx codes either.
                print(f"{job['id']}: {error.code}", file=sys.stderr)
                return
        except OSError:
            pass  # The server is restarting.
        time.sleep(pause)
        pause = min(pause * 2, 5)


def main() -> None:
    for _ in range(4):
        Thread(target=work_forever, daemon=True).start()
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
