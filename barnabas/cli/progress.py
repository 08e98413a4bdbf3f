"""A bar on stderr for what takes long, if that is a terminal and a person looks at it."""

from __future__ import annotations

import sys
from typing import Self


class Bar:
    """Owns a line of the terminal while its `with` block lasts, and clears it at the end; nothing without a terminal."""

    def __init__(self, title: str, *, is_bytes: bool = False) -> None:
        self.is_shown = sys.stderr.isatty()
        if not self.is_shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if is_bytes else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> Self:
        if self.is_shown:
            self._progress.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        if self.is_shown:
            self._progress.stop()

    def show(self, done: int, total: int | None) -> None:
        """`total` is None while it is not known."""
        if self.is_shown:
            self._progress.update(self._task, completed=done, total=total)
