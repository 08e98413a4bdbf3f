"""How the `log` commands go on where a file is damaged: what can be read is shown, and the end says what could not."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from barnabas.cli.errors import RefusedError
from barnabas.cli.log.files import LogFile

Rows = Iterable[dict[str, Any]]


def add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a log directory, a partition's directory in it, or a file")


class Files:
    """The files one after another; `read` keeps what is wrong with one."""

    def __init__(self, files: Sequence[LogFile]) -> None:
        self._files = files
        self.faults: list[str] = []

    def __iter__(self) -> Iterator[LogFile]:
        return iter(self._files)

    def read(self, rows: Callable[[LogFile], Rows], file: LogFile) -> list[dict[str, Any]]:
        """The rows of a file, up to where it is damaged."""
        found: list[dict[str, Any]] = []
        try:
            for row in rows(file):
                found.append(row)
        except (RefusedError, OSError) as e:
            self.faults.append(str(e))
        return found


@contextlib.contextmanager
def each_file(files: Sequence[LogFile]) -> Iterator[Files]:
    """Raises RefusedError at the end if one could not be read."""
    reading = Files(files)
    yield reading
    if reading.faults:
        raise RefusedError("; ".join(reading.faults))
