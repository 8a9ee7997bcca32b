"""A remote worker that tests kill: `python puller.py LEDGER QUEUE LIMIT URL…`, without Django or this package.

It writes each job that it runs into the ledger before it reports.  A call without an answer is sent again, to the next
web server, with the same id.  Jobs of the queue "once" are confirmed before they run, as the documents ask; the
others run at once, because a second run of them does no harm.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import sys
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

#: Seconds for one answer: a claim waits for two of them.
PATIENCE = 30.0
WAIT = 2.0


class Servers:
    """Keeps a connection to one web server, and goes to the next when it fails."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = itertools.cycle(urls[os.getpid() % len(urls) :] + urls[: os.getpid() % len(urls)])
        self.connection: http.client.HTTPConnection | None = None
        self.path = ""

    def call(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """POST until there is an answer other than "the store is away".  Returns its status and document."""
        headers = {"Authorization": f"Bearer {os.environ['JOBS_TOKEN']}", "Content-Type": "application/json"}
        while True:
            try:
                if self.connection is None:
                    url = urlsplit(next(self.urls))
                    assert url.hostname is not None
                    self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE)
                    self.path = url.path
                self.connection.request("POST", f"{self.path}/v1/{path}", json.dumps(body), headers)
                answer = self.connection.getresponse()
                text = answer.read()
                if answer.will_close:
                    self.close()
                if answer.status < 500:
                    return answer.status, json.loads(text)
            except (OSError, http.client.HTTPException, ValueError):
                self.close()
            time.sleep(0.05)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def main(ledger: str, queue: str, limit: str, *urls: str) -> None:
    servers, file = Servers(list(urls)), os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    while True:
        request = {"limit": int(limit), "wait": WAIT, "request_id": uuid.uuid4().hex, "worker": f"puller-{os.getpid()}"}
        status, answer = servers.call(f"queues/{queue}/claim", request)
        if status != 200:
            print(status, answer, file=sys.stderr, flush=True)
            time.sleep(0.5)
            continue
        reports = []
        for job in answer["jobs"]:
            address = f"jobs/{job['name']}/{job['id']}/extend"
            if queue == "once" and servers.call(address, {"token": job["token"]})[0] != 200:
                continue
            os.write(file, f"{job['id']} {os.getpid()}\n".encode())
            report = {"name": job["name"], "id": job["id"], "token": job["token"]}
            reports.append({**report, "status": "succeeded", "result": os.getpid()})
        if reports:
            status, answer = servers.call("reports", {"reports": reports})
            told = {each["status"] for each in answer["reports"]} if status == 200 else {status}
            if not told <= {200, 409}:  # 409: the attempt is over, and another worker has the job
                print(status, answer, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
