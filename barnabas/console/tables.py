"""Tables that the server sorts, filters and cuts into pages: what the address says of them, and the rows to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

ROWS = 50
FILTER_MAX = 200
T = TypeVar("T")
Key = Callable[[T], Any]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`rows` of page `number` (from 1) of `pages`, out of `count` that the filter lets through."""

    rows: Sequence[T]
    count: int
    number: int
    pages: int
    sort: str
    is_descending: bool
    filter: str
    others: Mapping[str, str]
    """Of the address, what is not the table's."""

    def link(self, **changes: Any) -> str:
        """The address of the same table with something changed; of another order it is the first page."""
        now = {"sort": self.sort, "desc": "1" if self.is_descending else "0", "page": str(self.number), "filter": self.filter}
        if "page" not in changes:
            now["page"] = "1"
        now = {**self.others, **now, **{key: str(value) for key, value in changes.items()}}
        return "?" + urlencode({key: value for key, value in now.items() if value})

    def sort_link(self, column: str) -> str:
        """A second click turns the order. Numbers are of interest from the largest on, names from A."""
        descending = not self.is_descending if column == self.sort else column != "name"
        return self.link(sort=column, desc=int(descending))

    def mark(self, column: str) -> str:
        """aria-sort of a column's head."""
        if column != self.sort:
            return "none"
        return "descending" if self.is_descending else "ascending"


def page_of(
    rows: Sequence[T], query: Mapping[str, str], columns: Mapping[str, Key[T]], *, name: Key[T], default: str, descending: bool = True
) -> Page[T]:
    """By what the address says: `sort`, `desc`, `page` and `filter`. A filter is a part of the name, in whatever case: no pattern, no code.
    What is not known (None) comes last."""
    sort = query.get("sort", "")
    sort = sort if sort in columns else default
    is_descending = query.get("desc", str(int(descending))) == "1"
    text = query.get("filter", "")[:FILTER_MAX]
    shown = [row for row in rows if text.lower() in str(name(row)).lower()] if text else list(rows)
    key = columns[sort]
    known = sorted((row for row in shown if key(row) is not None), key=name)
    known.sort(key=key, reverse=is_descending)
    known += sorted((row for row in shown if key(row) is None), key=name)
    pages = max(-(-len(known) // ROWS), 1)
    number = min(max(int(digits) if (digits := query.get("page", "1")[:9]).isdecimal() else 1, 1), pages)
    others = {key: value for key, value in query.items() if key not in ("sort", "desc", "page", "filter")}
    return Page(known[(number - 1) * ROWS : number * ROWS], len(known), number, pages, sort, is_descending, text, others)
