"""Headings of tables: those by which a table can be sorted are links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from django_jobs.admin.common.labels import Text


class Column(NamedTuple):
    """A heading; one that sorts is a link."""

    label: Text
    #: the address of the table sorted by it, the other way round if it is so already; "" = it cannot be sorted by it.
    url: str = ""
    #: "ascending" or "descending", if the table is sorted by this column.
    sorted: str = ""
    #: its values are numbers.
    number: bool = False


class Sorting(NamedTuple):
    """By which column a table is sorted; `key` "" = in its usual order."""

    key: str = ""
    descending: bool = False

    @property
    def query(self) -> dict[str, str]:
        """The parameters of an address that say so."""
        return {"sort": self.key, "order": "desc" if self.descending else "asc"} if self.key else {}


def read_sorting(query: Mapping[str, str], keys: Sequence[str]) -> Sorting:
    """Read the parameters `sort`, one of these keys, and `order`; anything else is the usual order."""
    key, order = query.get("sort", ""), query.get("order", "")
    return Sorting(key, order == "desc") if key in keys and order in ("asc", "desc") else Sorting()


def columns_of(names: Mapping[str, Text], by: Sorting, others: Mapping[str, str], *, words: str) -> list[Column]:
    """Return the headings of a table that can be sorted by every column.

    `names`: key → label.  `others`: the other parameters of the address.  `words`: the key of the column of names,
    which is sorted from a to z first; numbers are sorted from the largest down first."""
    found = []
    for key, label in names.items():
        is_sorted, first = key == by.key, key != words
        link = Sorting(key, not by.descending if is_sorted else first)
        way = ("descending" if by.descending else "ascending") if is_sorted else ""
        found.append(Column(label, f"?{urlencode(dict(others) | link.query)}", way, key != words))
    return found
