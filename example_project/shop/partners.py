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


async def post_json_async(url: str, data: dict[str, Any]) -> dict[str, Any]:
    """POST `data` and return the answer, without holding a thread.  Raises PartnerError or OSError."""
    parts = urlsplit(url)
    body = json.dumps(data).encode()
    request = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            writer.write(request.encode() + body)
            await writer.drain()
            head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
    status = head.split(b"\r\n")[0]
    if not status.partition(b" ")[2].startswith(b"2"):
        raise PartnerError(f"{parts.path} answered {status.decode(errors='replace') or 'nothing'}")
    return json.loads(answer)
