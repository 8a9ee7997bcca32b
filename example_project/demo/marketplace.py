"""A marketplace without Django: it enqueues jobs in the shop over HTTP, and reads their results."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

TIMEOUT = 30


class Marketplace:
    """A client of the HTTP API at `url`, with a token."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self._token = url, token

    def put(self, name: str, id: str, data: Any) -> None:
        """Enqueue a job under an id of its own: sent twice, it is still one job."""
        self._call("PUT", f"v1/jobs/{name}/{id}", {"data": data})

    def result(self, name: str, id: str) -> Any:
        """Return the result of the job; None while it has not succeeded."""
        return self._call("GET", f"v1/jobs/{name}/{id}")["result"]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}/{path}", data, headers, method=method), timeout=TIMEOUT) as answer:
            return json.load(answer)
