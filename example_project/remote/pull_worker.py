"""A pull worker without Django or any library: fetches jobs, runs them, and reports how they ended.

    JOBS_URL=http://localhost:8000/jobs JOBS_TOKEN=djt_… python pull_worker.py QUEUE

Its job computes a checksum: {"text": "abc"} → {"sha256": "ba78…"}.  It prints a line for each job that it runs.  After
SIGTERM it ends when the jobs that it has are reported; if it has none, at once, whether its claim is answered or not.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
import uuid
from hashlib import sha256
from http.client import HTTPException
from typing import Any

JOBS_URL = os.environ["JOBS_URL"].rstrip("/")
JOBS_TOKEN = os.environ["JOBS_TOKEN"]
#: Jobs of one claim, seconds that a claim waits for jobs, and seconds that a confirmed job is ours.
LIMIT, WAIT, LEASE = 5, 10, 60
#: What this worker calls itself: users see who runs a job.
NAME = f"{socket.gethostname()}.{os.getpid()}"[-64:]
#: Seconds after which a call is given up.
PATIENCE = 60.0

stopping = claiming = False


class Stopped(Exception):
    """SIGTERM came while this worker had no job."""


def stop(*_: Any) -> None:
    global stopping
    first, stopping = not stopping, True
    if first and claiming:  # what the claim gets is never confirmed, so it goes back to the queue and is not counted
        raise Stopped


def call(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Send the call until it is answered: each call may arrive twice.  Returns status (0: no answer) and document."""
    headers = {"Authorization": f"Bearer {JOBS_TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{JOBS_URL}/v1/{path}", json.dumps(body).encode(), headers, method="POST")
    deadline, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        try:
            with urllib.request.urlopen(request, timeout=WAIT + 10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code < 500:
                    return error.code, error.read().decode()
        except (OSError, HTTPException, ValueError):
            pass  # no answer, or half of one
        if time.monotonic() + pause > deadline:
            return 0, None
        time.sleep(pause)
        pause = min(pause * 2, 1)


def claim(queue: str) -> list[dict[str, Any]]:
    """Return jobs that are ours.  A new id for each claim: if its answer is lost, the same id gets the same jobs."""
    global claiming
    body = {"limit": LIMIT, "wait": WAIT, "request_id": uuid.uuid4().hex, "worker": NAME}
    try:
        claiming = True
        if stopping:  # since it was last asked
            return []
        status, answer = call(f"queues/{queue}/claim", body)
        claiming = False
    except Stopped:
        return []
    if status != 200:
        print(f"claim: {status} {answer}", file=sys.stderr)
        time.sleep(1)
        return []
    # A claim is valid for ten seconds until it is confirmed.  Begin it only after 200: then it is ours, however late.
    return [job for job in answer["jobs"] if extend(job)]


def extend(job: dict[str, Any]) -> bool:
    """Confirm or keep a job for LEASE seconds.  A job that runs longer calls this again before the time is over."""
    return call(f"jobs/{job['name']}/{job['id']}/extend", {"token": job["token"], "lease": LEASE})[0] == 200


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job.  Returns its report."""
    report = {"name": job["name"], "id": job["id"], "token": job["token"]}
    print(job["id"], flush=True)
    try:
        return {**report, "status": "succeeded", "result": {"sha256": sha256(job["data"]["text"].encode()).hexdigest()}}
    except (TypeError, KeyError, AttributeError) as error:
        # The data is wrong, so another attempt would fail, too.
        return {**report, "status": "failed", "retryable": False, "error": repr(error)}


def main(queue: str) -> None:
    signal.signal(signal.SIGTERM, stop)
    while not stopping:
        if reports := [run(job) for job in claim(queue)]:
            status, answer = call("reports", {"reports": reports})
            for each in answer["reports"] if status == 200 else ():
                if each["status"] != 200:  # 409: the attempt is over, and somebody else has the job
                    print(f"{each['id']}: {each['problem']['detail']}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
