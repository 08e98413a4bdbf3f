"""Progress of what takes long: a bar on stderr if that is a terminal and rich is there (the extra `cli`). Elsewhere the jobs' lines say it,
and those of a Bar that has `lines`.

A job tells how far it is by `show`. What it is doing within that, or all if it tells nothing, is seen from Spark: how many tasks of the
stages that run now have ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

POLL_S = 0.5
LINE_INTERVAL_S = 60.0


class Bar:
    """Owns a line of the terminal while its `with` block lasts, and clears it at the end. Its thread is the only one that asks Spark."""

    def __init__(
        self,
        title: str,
        unit: str,
        spark: SparkSession | None = None,
        *,
        lines: Callable[[str], None] | None = None,
        line_interval_s: float = LINE_INTERVAL_S,
    ) -> None:
        """`unit`: what is counted, such as "folders". `lines` gets one each interval where there is no bar."""
        self.is_shown = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
        self._title = title
        self._unit = unit
        self._spark = spark
        self._lines = lines
        self._interval_s = POLL_S if self.is_shown else line_interval_s
        self._total: int | None = None
        self._lock = threading.Lock()  # a line is printed by one thread while the bar is drawn by another
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bar", daemon=True)
        self._progress: Any = None
        if self.is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"), TimeRemainingColumn()
            self._progress = Progress(
                *columns,
                console=Console(file=sys.stderr),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                refresh_per_second=2,
            )
            self._task = self._progress.add_task(title, total=None, counts="")

    def __enter__(self) -> Self:
        if self.is_shown:
            self._progress.start()
        if self._spark is not None and (self.is_shown or self._lines is not None):
            self._thread.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.is_shown:
            self._progress.stop()

    def show(self, done: int, total: int | None) -> None:
        """`total` is None while it is not known."""
        if self.is_shown:
            self._total = total
            counts = f"{done:,} {self._unit}" if total is None else f"{done:,}/{total:,} {self._unit}"
            self._progress.update(self._task, completed=done, total=total, counts=counts)

    def around(self, print_line: Callable[[str], None]) -> Callable[[str], None]:
        """The same, for lines that come while the bar is shown: it goes away for each of them."""
        if not self.is_shown:
            return print_line

        def with_bar(line: str) -> None:
            with self._lock:
                self._progress.stop()
                print_line(line)
                self._progress.start()

        return with_bar

    def _watch(self) -> None:
        told: tuple[int, int] | None = None
        while not self._ended.wait(self._interval_s):
            found = self._tasks()
            if found is None or found == told:
                continue
            told = found
            done, total = found
            if not self.is_shown:
                assert self._lines is not None
                self._lines(f"{self._title}: {done:,} of {total:,} tasks of the running stages are done")
            elif self._total is None:
                self._progress.update(self._task, completed=done, total=total, counts=f"{done:,}/{total:,} tasks")
            else:
                self._progress.update(self._task, description=f"{self._title} (task {done:,}/{total:,})")

    def _tasks(self) -> tuple[int, int] | None:
        """Those that have ended, and all, of the stages that run now. None if none runs."""
        assert self._spark is not None
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark may be about to end
            tracker = self._spark.sparkContext.statusTracker()
            stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
            if stages:
                return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
        return None
