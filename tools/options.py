"""Write what follows from the declaration of the options: `python -m tools.options`.

The keywords for type checkers (django_jobs/enqueueing/keywords.py), and the tables of docs/reference/job-options.md.  A
test compares both with the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django_jobs.core.options.declared import NAMING, OPTIONS, SHARED, Option
from django_jobs.enqueueing.call_options import CALL_OPTIONS

ROOT = Path(__file__).resolve().parent.parent
KEYWORDS = ROOT / "django_jobs" / "enqueueing" / "keywords.py"
PAGE = ROOT / "docs" / "reference" / "job-options.md"
HEAD = '''\
"""The options of `@job` and of `using` with their types: editors and type checkers find a misspelt one.

Made by `make docs` from core/options/declared.py and enqueueing/call_options.py; do not edit it by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID

#: Seconds, or a timedelta.
Duration = float | timedelta
Errors = type[Exception] | Sequence[type[Exception]]
'''


def keywords() -> str:
    """Return the text of keywords.py."""
    shared = {name: option for name, option in OPTIONS.items() if name in SHARED}
    # `takes_context` decides on the signature of the function, so it is written out in the overloads of `job`.
    others = {name: option for name, option in OPTIONS.items() if name not in SHARED | {"takes_context"}}
    return HEAD + "".join(
        f'\n\nclass {name}({base}, total=False):\n    """{what}"""\n\n'
        + "".join(f"    {option}: {declared.type}\n" for option, declared in options.items())
        for name, base, what, options in (
            ("SharedKeywords", "TypedDict", "What `@job` and `using` both take.", shared),
            ("JobKeywords", "SharedKeywords", "What `@job` takes, without `takes_context`.", {**NAMING, **others}),
            ("UsingKeywords", "SharedKeywords", "What `using` takes.", CALL_OPTIONS),
        )
    )


def page(text: str) -> str:
    """Return the text of the page with its tables written again."""
    for heading, options in (("option", {**NAMING, **OPTIONS}), ("option of `using`", CALL_OPTIONS)):
        start = text.index(f"| {heading} |")
        text = text[:start] + table(heading, options) + text[text.index("\n\n", start) :]
    return text


def table(heading: str, options: Mapping[str, Option[Any]]) -> str:
    """Return a table of these options."""
    rows = [f"| `{name}` | {option.shown} | {option.words} |" for name, option in options.items()]
    return "\n".join([f"| {heading} | default | meaning |", "|---|---|---|", *rows])


if __name__ == "__main__":
    KEYWORDS.write_text(keywords())
    PAGE.write_text(page(PAGE.read_text()))
