"""A bar on stderr for what takes long, if that is a terminal and a person looks at it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self

SHOWN_AFTER_S = 1.0


class Bar:
    """Owns a line of the terminal while its `with` block lasts, and clears it at the end. It is there once the block has lasted a second;
    nothing without a terminal."""

    def __init__(self, title: str, *, is_bytes: bool = False) -> None:
        self.is_shown = sys.stderr.isatty()
        """Or will be, if it takes that long."""
        self._title = title
        self._is_bytes = is_bytes
        self._from_s = time.monotonic() + SHOWN_AFTER_S
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        if self._stop is not None:
            self._stop()

    def show(self, done: int, total: int | None) -> None:
        """`total` is None while it is not known."""
        if not self.is_shown or time.monotonic() < self._from_s:
            return
        if self._stop is None:
            self._start()
        self._progress.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if self._is_bytes else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(self._title, total=None)
        self._progress.start()
        self._stop = self._progress.stop
