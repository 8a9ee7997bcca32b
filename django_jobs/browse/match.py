"""What a list of jobs is filtered by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from django.utils.crypto import salted_hmac

from django_jobs.browse.query.parsing import Term, concealed, parse, terms_of, written
from django_jobs.browse.query.terms import fixed, fulfils, ms_of, names_of
from django_jobs.core import registry
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.signature import LENGTH, signature
from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import InvalidQuery
from django_jobs.serialization import payloads
from django_jobs.serialization.checked import loaded
from django_jobs.serialization.record import name_of, tags_of
from django_jobs.stores.values.lists import TIMED, Span

#: The terms of a query for which the store has a place, or a form a field.
_FILTERS = frozenset({"queue", "name", "text", "tag", "id"})
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
    #: one job, exactly.
    id: str = ""
    #: what else a query asks for, as a query.
    terms: str = ""
    #: the job types that the user may see, a list as JSON; "" = all.
    types: str = ""

    def __post_init__(self) -> None:
        """A type that was renamed is found by its older names, too."""
        object.__setattr__(self, "name", registry.current_name(self.name))

    @property
    def needs_scan(self) -> bool:
        """Return whether anything is searched for that is no place in a list: other than the queue and the time."""
        return bool(self.name or self.text or self.error or self.tag or self.id or self.terms or self.types)

    @property
    def has_groups(self) -> bool:
        """Return whether the store's groups of failed jobs narrow the choice."""
        return bool(self.name or self.error or self.tag or (self.terms and self._error_class))

    @property
    def _error_class(self) -> str:
        return next((term.value for term in terms_of(self.terms) if term.field == "error"), "")

    @property
    def query(self) -> str:
        """The query for what no field of a form shows."""
        parts = (written(self.text) if self.text else "", f"{Term('id', self.id)}" if self.id else "", self.terms)
        return " ".join(filter(None, parts))

    def asked(self, text: str, state: State | None = None, *, archived: bool = False) -> Match:
        """Return these filters and a query, ANDed.  What the store has a place for becomes a filter; the rest is
        checked job by job.  `state`: that of the list; None for a list of all states.  `archived`: of archived jobs.

        Raises InvalidQuery, also for arguments if the reader may not see them."""
        fields, rest = dict[str, Any](), list[Term]()
        # The store has no order of time for some succeeded jobs, and would leave them out.
        timed = archived or (state in TIMED and state is not State.SUCCEEDED)
        for term in parse(text):
            if term.field == "arg" and not self.arguments:
                raise InvalidQuery(f"You may not see arguments, and so not search for {term}.", text.find("arg."))
            if term.field == "state" and state is not None:
                if term.value == state:
                    continue
                raise InvalidQuery(
                    f"This is the list of the jobs that are {state}. Leave out {term}, or use that list.",
                    text.find("state:"),
                )
            field, given = term.field, fields.get(term.field, getattr(self, term.field, ""))
            if timed and field == "before":
                fields[field] = min(filter(None, (ms_of(term.value), given)))
            elif timed and field == "after":
                fields["since"] = max(ms_of(term.value), fields.get("since", self.since))
            elif field in _FILTERS and not given:
                fields[field] = term.value
            else:
                rest.append(fixed(term))
        terms = " ".join(filter(None, (self.terms, *map(str, rest))))
        return replace(self, **fields, terms=terms)

    @property
    def span(self) -> Span | None:
        """The stretch of time; None for any time."""
        return Span(self.since, self.before) if self.since or self.before else None

    def stored(self) -> dict[str, Any]:
        """Return the fields as they are stored.  What older versions do not know is left out where it chooses nothing:
        they cannot read a filter that has it, and leave it to others."""
        ways = {"arguments": True, "since": 0, "before": 0, "tag": "", "id": "", "terms": "", "types": ""}
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
        """Return whether this job, which matches by queue, job type and error, has all the rest."""
        if (self.tag and self.tag not in tags_of(info.record)) or self.id not in ("", info.id):
            return False
        if not Span(self.since, self.before).has(info.at) or not self.shows(info):
            return False
        if not fulfils(info, terms_of(self.terms), arguments=self.arguments):
            return False
        text = self.text.casefold()
        return not text or text in payloads.searchable_text(info, arguments=self.arguments).casefold()

    def shows(self, info: JobInfo) -> bool:
        """Return whether the user may see jobs of this type."""
        return not self.types or not names_in(self.types).isdisjoint(registry.names_of(name_of(info.record)))

    def accepts_error(self, text: str) -> bool:
        """Return whether jobs with this signature match.  A reader who may not see arguments filters by keys only,
        because guessing a signature could reveal what is in it."""
        if self.terms and self._error_class and not may_be_of(text, self._error_class):
            return False
        return not self.error or self.error == error_key(text) or (self.arguments and self.error == text)


def readable_by(filters: Mapping[str, Any], *, arguments: bool) -> dict[str, Any]:
    """Return the fields of a Match, or some of them, as they are shown to a reader.  `arguments`: the reader may see
    them; without that, no value shows for which somebody else has searched in them, or in the texts of errors."""
    ways: dict[str, Callable[[str], str]] = {"text": lambda _: HIDDEN, "error": _key_of, "terms": concealed}
    hides = {} if arguments else ways
    return {key: hides[key](str(value)) if key in hides and value else value for key, value in filters.items()}


def _key_of(error: str) -> str:
    return error if is_error_key(error) else error_key(error)


@lru_cache(maxsize=256)
def names_in(text: str) -> frozenset[str]:
    """Return the names in a JSON list; none if it cannot be read, so that nothing is shown."""
    names = loaded(text)
    return frozenset(each for each in names if isinstance(each, str)) if isinstance(names, list) else frozenset()


def may_be_of(text: str, name: str) -> bool:
    """Return whether jobs with this signature, or of a group with many of them, may have an error of this class."""
    kind = text.partition(": ")[0]
    return text == kind == "…" or len(kind.encode()) >= LENGTH or name in names_of(kind)


@lru_cache(maxsize=20_000)
def error_key(text: str) -> str:
    """Return the filter for jobs with this signature.  It shows in addresses, and must not tell the error."""
    return salted_hmac("django_jobs.error", text, algorithm="sha256").hexdigest()[:KEY]


def is_error_key(text: str) -> bool:
    """Return whether this has the form of a key of an error."""
    return len(text) == KEY and not text.strip("0123456789abcdef")
