"""Queue names and ids in addresses: quoted as the admin quotes keys, and safe from browsers that resolve dots."""

from __future__ import annotations

from django.contrib.admin import utils

#: The admin leaves dots alone; a part of dots alone would be a step up to every browser.
DOT = "_2E"
#: Nothing, which is no part of an address; a damaged store may hold it.  No quoted text is a single "_".
EMPTY = "_"


def quote(part: str) -> str:
    """Any text as one part of an address."""
    return utils.quote(part) if part.strip(".") else part.replace(".", DOT) or EMPTY


def unquote(part: str) -> str:
    """The text again."""
    return "" if part == EMPTY else utils.unquote(part.replace(DOT, "."))
