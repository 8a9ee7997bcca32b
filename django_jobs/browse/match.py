"""What a list of jobs is filtered by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from django.utils.crypto import salted_hmac

from django_jobs.core.signature import signature
from django_jobs.core.values import JobInfo
from django_jobs.serialization import payloads
from django_jobs.serialization.record import name_of


@dataclass(frozen=True, slots=True)
class Match:
    """The filters; an empty field matches everything."""

    queue: str = ""
    name: str = ""
    #: text in the id, the name, the arguments as shown, or the last error.
    text: str = ""
    #: the last error: its signature, or the key of it (`error_key`).
    error: str = ""
    #: False: the user may not see arguments, so they are not searched.
    arguments: bool = True

    @property
    def needs_scan(self) -> bool:
        """Return whether anything other than the queue is searched for."""
        return bool(self.name or self.text or self.error)

    def accepts(self, info: JobInfo) -> bool:
        """Return whether this job matches.  Masked arguments are not searched, so searching cannot reveal them."""
        if self.name and name_of(info.record) != self.name:
            return False
        if self.error and not self.accepts_error(signature(info.attempts[-1] if info.attempts else None)):
            return False
        return self.accepts_text(info)

    def accepts_text(self, info: JobInfo) -> bool:
        """Return whether the text is in this job, as it is shown."""
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
    return salted_hmac("django_jobs.error", text, algorithm="sha256").hexdigest()[:16]
