"""What commands print: tables for a person, data for a program. What comes from a cluster cannot give a terminal orders."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cli.errors import RefusedError

Row = Mapping[str, Any]
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that move a cursor, end a line or turn the direction of writing."""
CLEAR = "\x1b[H\x1b[2J"
"""Clears a terminal."""
UNLIMITED = 100_000
"""Columns of what is no terminal: a table is cut nowhere then."""


class Column(NamedTuple):
    """A field of the rows. `is_wide`: only with --output wide. Numbers stand right."""

    key: str
    title: str
    to_text: Callable[[Any], str] = str
    is_number: bool = False
    is_wide: bool = False


class Output:
    """Prints in the way of --output."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    @property
    def is_data(self) -> bool:
        """Whether a program reads it."""
        return self._kind in ("json", "yaml")

    def data(self, value: Any) -> None:
        if self._kind == "yaml":
            import yaml

            print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")
        else:
            print(json.dumps(value, indent=2, ensure_ascii=False))

    def rows(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """All fields as data, or a table of the columns."""
        if self.is_data:
            self.data([dict(row) for row in rows])
        else:
            self.table(rows, columns)

    def table(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        shown = [column for column in columns if self._kind == "wide" or not column.is_wide]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in shown:
            table.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(row.get(column.key), column.to_text)) for column in shown))
        is_terminal = sys.stdout.isatty()
        console = Console(file=sys.stdout, width=None if is_terminal else UNLIMITED)
        if is_terminal:
            console.print(table)
            return
        with console.capture() as capture:
            console.print(table)
        print("\n".join(line.rstrip() for line in capture.get().splitlines()))

    def line(self, text: str) -> None:
        """For a person; a program gets data instead."""
        if not self.is_data:
            print(printable(text))


def printable(text: str) -> str:
    """The text with control characters as `\\x1b`."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def human_bytes(size_bytes: int) -> str:
    """1.5 MB; powers of 1,000."""
    if size_bytes < 1_000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1_000
        if size < 999.5 or unit == "TB":
            break
    return f"{size:.1f} {unit}"


def human_duration(duration_ms: int) -> str:
    """The two largest units: 2d 3h, 5m 10s, 1.2s."""
    seconds, rest_ms = divmod(max(duration_ms, 0), 1_000)
    if seconds < 60:
        return f"{seconds}.{rest_ms // 100}s"
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def thousands(number: int) -> str:
    return f"{number:,}"


def rate(value: float) -> str:
    """Of something a second."""
    return thousands(round(value)) if value >= 10 or value == 0 else f"{value:.1f}"


def signed_rate(value: float) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{rate(abs(value))}"


def byte_rate(value: float) -> str:
    return f"{human_bytes(round(value))}/s"


def confirm(plan: Sequence[str], *, dry_run: bool, yes: bool) -> bool:
    """Whether to do what `plan` says, which is printed on stderr. Raises RefusedError where nobody can be asked."""
    for line in plan:
        print(printable(line), file=sys.stderr)
    if dry_run:
        print("dry run: nothing was done", file=sys.stderr)
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise RefusedError("nobody can be asked, since there is no terminal; --yes does it, --dry-run only shows it")
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was done")
    return True


def _cell(value: Any, to_text: Callable[[Any], str]) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join("-" if each is None else str(each) for each in value)) or "-"
    return printable(to_text(value))
