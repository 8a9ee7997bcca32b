"""What a list of jobs is filtered by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from django.utils.crypto import salted_hmac

from django_jobs.core.signature import signature
from django_jobs.core.values import JobInfo
from django_jobs.serialization import payloads
from django_jobs.serialization.record import name_of, tags_of
from django_jobs.stores.values.lists import Span

#: Length of the key of an error.
KEY = 16


@dataclass(frozen=True, slots=True)
class Match:
    """The filters; an empty field matches everything."""

    queue: str = ""
    name: str = ""
    #: text in the id, the name, the tags, the arguments as shown, or the last error.
    text: str = ""
    #: the last error: its signature, or the key of it (`error_key`).
    error: str = ""
    #: False: the user may not see arguments, so they are not searched.
    arguments: bool = True
    #: ms: the time of the state, as in Span; 0 = no limit.
    since: int = 0
    before: int = 0
    #: one tag of the job, exactly.
    tag: str = ""

    @property
    def needs_scan(self) -> bool:
        """Return whether anything is searched for that is no place in a list: other than the queue and the time."""
        return bool(self.name or self.text or self.error or self.tag)

    @property
    def span(self) -> Span | None:
        """The stretch of time; None for any time."""
        return Span(self.since, self.before) if self.since or self.before else None

    def stored(self) -> dict[str, Any]:
        """Return the fields as they are stored.  What older versions do not know is left out where it chooses nothing:
        they cannot read a filter that has it, and leave it to others."""
        ways = {"arguments": True, "since": 0, "before": 0, "tag": ""}
        return {key: value for key, value in asdict(self).items() if key not in ways or value != ways[key]}

    def accepts(self, info: JobInfo) -> bool:
        """Return whether this job, which is in the state that is listed, matches.  Masked arguments are not searched,
        so searching cannot reveal them."""
        if self.name and name_of(info.record) != self.name:
            return False
        if self.error and not self.accepts_error(signature(info.attempts[-1] if info.attempts else None)):
            return False
        return self.accepts_rest(info)

    def accepts_rest(self, info: JobInfo) -> bool:
        """Return whether this job, which matches by queue, job type and error, has the tag, the text and the time."""
        if self.tag and self.tag not in tags_of(info.record):
            return False
        return Span(self.since, self.before).has(info.at) and self._has_text(info)

    def _has_text(self, info: JobInfo) -> bool:
        return not self.text or self.text.casefold() in self._text(info).casefold()

    def accepts_error(self, text: str) -> bool:
        """Return whether jobs with this signature match.  A reader who may not see arguments filters by keys only,
        because guessing a signature could reveal what is in it."""
        return not self.error or self.error == error_key(text) or (self.arguments and self.error == text)

    def _text(self, info: JobInfo) -> str:
        return payloads.searchable_text(info, arguments=self.arguments)


@lru_cache(maxsize=20_000)
def error_key(text: str) -> str:
    """Return the filter for jobs with this signature.  It shows in addresses, and must not tell the error."""
    return salted_hmac("django_jobs.error", text, algorithm="sha256").hexdigest()[:KEY]


def is_error_key(text: str) -> bool:
    """Return whether this has the form of a key of an error."""
    return len(text) == KEY and not text.strip("0123456789abcdef")
