"""A customer with a browser: sends forms to the running web server as a person would."""

from __future__ import annotations

import re
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

TIMEOUT = 30


class Customer:
    """A browser that keeps cookies and the form token."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))
        self._token = ""

    def get(self, path: str) -> str:
        """Open a page.  Raises URLError unless it answers 2xx."""
        with self._opener.open(self.address + path, timeout=TIMEOUT) as answer:
            page = answer.read().decode(errors="replace")
        if found := re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page):
            self._token = found[1]
        return page

    def post(self, path: str, **fields: object) -> str:
        """Send a form; return the address it led to.  The token comes from the last page with a form."""
        return self._send(path, urlencode({**fields, "csrfmiddlewaretoken": self._token}).encode(), None)

    def upload(self, path: str, field: str, file: Path) -> str:
        """Send a form with a file."""
        with file.open("rb") as content:
            body = encode_multipart(BOUNDARY, {field: content, "csrfmiddlewaretoken": self._token})
        return self._send(path, body, MULTIPART_CONTENT)

    def _send(self, path: str, body: bytes, content_type: str | None) -> str:
        headers = {"Referer": self.address + "/"} | ({"Content-Type": content_type} if content_type else {})
        with self._opener.open(Request(self.address + path, body, headers), timeout=TIMEOUT) as answer:
            return answer.url

    def reaches(self, path: str) -> bool:
        """Return whether the server answers at this path yet."""
        try:
            self.get(path)
        except (URLError, ConnectionError):
            return False
        return True
