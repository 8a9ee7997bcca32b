"""Queue names and ids in URLs: quoted like the admin quotes keys, and safe from browsers that resolve dots."""

from __future__ import annotations

from django.contrib.admin import utils

#: The admin does not quote dots, but every browser reads a part of only dots as a step upwards.
DOT = "_2E"
#: An empty text, which a URL cannot have as a part; a damaged store may contain one.  No quoted text is a single "_".
EMPTY = "_"


def quote(part: str) -> str:
    """Return any text as one part of a URL."""
    return utils.quote(part) if part.strip(".") else part.replace(".", DOT) or EMPTY


def unquote(part: str) -> str:
    """Return the text that `quote` was given."""
    return "" if part == EMPTY else utils.unquote(part.replace(DOT, "."))
