"""Sensitive arguments: which ones a call has, and texts without their values.  Pure.

The names travel with each job, in `Options.sensitive`, because the process that shows a job may not know its type:
words with spaces between them.  `card` is a parameter, `@1` the argument at that position, `@1+` all from there on,
`**` every keyword argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Signature
from typing import Any
from urllib.parse import quote, quote_plus

#: Shown instead of a sensitive value.
HIDDEN = "••••"
#: More values, or more characters of them, are not searched for: then the whole text is hidden.
MOST_VALUES, MOST_LENGTH = 500, 50_000
#: A shorter value is replaced only where it stands alone: "7" is a part of many words.
SHORT = 6
#: Numbers with so many digits are found with spaces or dashes between the digits, too, as cards are printed.
LONG_NUMBER = 8

Call = tuple[list[Any], dict[str, Any]]
Scrub = Callable[[str], str]


def words_for(names: Sequence[str], signature: Signature) -> str:
    """Return what travels with a job whose definition has these sensitive parameters."""
    words: list[str] = []
    for i, parameter in enumerate(signature.parameters.values()):
        if parameter.name not in names:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            words.append("**")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            words.append(f"@{i}+")
        else:
            words += [] if parameter.kind is parameter.KEYWORD_ONLY else [f"@{i}"]
            words.append(parameter.name)
    words += [name for name in names if name not in signature.parameters]
    return " ".join(words)


def hide(words: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Return the call with HIDDEN in place of the values that the words name.  Words that this version cannot read hide
    everything."""
    if not words:
        return list(args), dict(kwargs)
    named = words.split()
    try:
        places = [word[1:] for word in named if word.startswith("@")]
        at = {int(place) for place in places if not place.endswith("+")}
        first = min((int(place[:-1]) for place in places if place.endswith("+")), default=len(args))
    except ValueError:
        return hide_all(args, kwargs)
    return (
        [HIDDEN if i in at or i >= first else value for i, value in enumerate(args)],
        {key: HIDDEN if key in named or "**" in named else value for key, value in kwargs.items()},
    )


def hide_all(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Return the call with HIDDEN in place of every value."""
    return [HIDDEN] * len(args), dict.fromkeys(kwargs, HIDDEN)


def scrubber(stored: Call, shown: Call) -> Scrub | None:
    """Return a function that replaces in a text all values of `stored` (JSON) that are hidden in `shown`; None if none
    is."""
    pairs = [*zip(stored[0], shown[0], strict=True), *((value, shown[1][key]) for key, value in stored[1].items())]
    secret = [value for value, other in pairs if other == HIDDEN and value != HIDDEN]
    if not secret:
        return None
    texts: set[str] = set()
    for text in _texts(secret):
        texts.add(text)
        if len(texts) > MOST_VALUES or sum(map(len, texts)) > MOST_LENGTH:
            return lambda text: HIDDEN if text else text
    patterns = {pattern for text in texts for pattern in _patterns(text)}
    if not patterns:
        return None
    # The longest first: a value may be a part of another.
    found = re.compile("|".join(sorted(patterns, key=lambda pattern: (-len(pattern), pattern))), re.IGNORECASE)
    return lambda text: found.sub(HIDDEN, text)


def scrubbed(value: Any, scrub: Scrub) -> Any:
    """Return a JSON value with all its texts and numbers scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        return [scrubbed(item, scrub) for item in value]
    if isinstance(value, dict):
        return {scrub(key): scrubbed(item, scrub) for key, item in value.items()}
    if value is None or isinstance(value, bool):
        return value
    return value if scrub(str(value)) == str(value) else HIDDEN


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value: of a tagged value (`{"$date": "2026-01-31"}`), its content."""
    if isinstance(value, str):
        yield value
        if re.match(r"\d{4}-\d\d-\d\dT", value):
            yield value.replace("T", " ")
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        if len(value) == 1 and "$model" in value and isinstance(value["$model"], list):
            yield from _texts(value["$model"][1:])  # the first is the name of the model
            return
        tagged = len(value) == 1 and next(iter(value)).startswith("$")
        for key, item in value.items():
            if not tagged:
                yield key
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _patterns(text: str) -> Iterator[str]:
    """Yield regular expressions for the forms in which a text is quoted: as it is, in Python, in JSON, in a URL."""
    text = text.strip()
    if not text:
        return
    for form in {text, repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1],
                 quote(text), quote(text, safe=""), quote_plus(text)}:  # fmt: skip
        yield rf"(?<!\w){re.escape(form)}(?!\w)" if len(form) < SHORT else re.escape(form)
    digits = re.sub(r"[ -]", "", text)
    if digits.isascii() and digits.isdigit() and len(digits) >= LONG_NUMBER:
        yield "[ -]?".join(digits)
