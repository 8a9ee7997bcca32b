"""HTTP calls to the shop's partners with the standard library: JSON in both directions, an error unless 2xx."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

TIMEOUT = 10


class PartnerError(Exception):
    """A partner's server did not do what was requested."""


def post_json(url: str, data: dict[str, Any]) -> dict[str, Any]:
    """POST `data` and return the answer.  Raises OSError (HTTPError included)."""
    request = Request(url, json.dumps(data).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT) as answer:
        return json.load(answer)


async def post_json_async(url: str, data: dict[str, Any]) -> None:
    """POST `data` without holding a thread.  Raises PartnerError or OSError."""
    parts = urlsplit(url)
    body = json.dumps(data).encode()
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            writer.write(head.encode() + body)
            await writer.drain()
            status = (await reader.readline()).split()
        finally:
            writer.close()
            await writer.wait_closed()
    if len(status) < 2 or not status[1].startswith(b"2"):
        raise PartnerError(f"{parts.path} answered {b' '.join(status).decode(errors='replace') or 'nothing'}")
