"""Show what brokers, topics and groups do just now, again and again: rates, sizes, lag.

Keys: b, t, g choose brokers, topics or groups; s sorts by the next column, r the other way round; q ends it. In a pipe, and with --once, it
measures once and prints all three, or the one of --view.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import CLEAR, Output
from barnabas.cli.rates import Sample, sample
from barnabas.cli.settings import resolve
from barnabas.cli.top.views import SORTED_BY, VIEWS, Groups, Row, brokers, in_order, topics

INTERVAL_S = 2.0
FIRST_S = 0.2
"""Until the first rates are seen."""
ROWS_MAX = 20
KEYS = {"b": "brokers", "t": "topics", "g": "groups"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-v", "--view", choices=tuple(VIEWS), help="(topics; with --once all)")
    add("-s", "--sort", default="", metavar="FIELD", help="a field of the view, as --output json has it")
    add("-r", "--reverse", action="store_true", help="the other way round")
    add("-n", "--num", type=int, default=ROWS_MAX, metavar="N", help=f"rows of a view ({ROWS_MAX})")
    add("-i", "--interval", type=float, default=INTERVAL_S, metavar="SECONDS", help=f"what rates are measured over ({INTERVAL_S:g})")
    add("--once", action="store_true", help="measure once, print, end")
    add("--internal", action="store_true", help="also Kafka's own topics")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    if options.interval <= 0 or options.num < 1:
        raise NotUnderstoodError("--interval is more than 0, --num 1 or more")
    if options.sort and options.sort not in {column.key for column in VIEWS[options.view or "topics"]}:
        names = ", ".join(column.key for column in VIEWS[options.view or "topics"])
        raise NotUnderstoodError(f"--sort {options.sort}: {options.view or 'topics'} have {names}; --view chooses brokers or groups")
    output = Output(options.output)
    is_live = sys.stdout.isatty() and sys.stdin.isatty() and not options.once and not output.is_data
    with Connection(resolve(options)) as connection:
        top = Top(connection, options)
        if not is_live:
            views = [options.view] if options.view else list(VIEWS)
            measured = top.measure(views, lambda: time.sleep(options.interval))
            if output.is_data:
                output.data(measured)
            else:
                for name in views:
                    top.show(output, name, measured[name], "")
            return DONE
        with contextlib.suppress(KeyboardInterrupt), _single_keys():
            top.live(output)
    return DONE


class Top:
    """Owns what is shown: the view, its order, and the samples before."""

    def __init__(self, connection: Connection, options: argparse.Namespace) -> None:
        self._connection = connection
        self._options = options
        self._view: str = options.view or "topics"
        self._sorted_by = {**SORTED_BY, **({self._view: options.sort} if options.sort else {})}
        self._is_reversed: bool = options.reverse
        self._groups: tuple[float, Groups] | None = None
        self._is_ended = False

    def measure(self, views: list[str], wait: Any, before: Sample | None = None) -> dict[str, list[Row]]:
        """The rows of these views, over what `wait` waits for."""
        before = before or sample(self._connection)
        groups_before = self._groups or (time.monotonic(), Groups(self._connection)) if "groups" in views else None
        wait()
        after = self._last = sample(self._connection)
        found: dict[str, list[Row]] = {}
        if "brokers" in views:
            found["brokers"] = brokers(before, after)
        if "topics" in views:
            found["topics"] = topics(before, after, internal=self._options.internal)
        if groups_before is not None:
            self._groups = time.monotonic(), Groups(self._connection)
            found["groups"] = self._groups[1].rows(groups_before[1], max(self._groups[0] - groups_before[0], 1e-3))
        return {name: in_order(found[name], self._sorted_by[name], is_reversed=self._is_reversed) for name in views}

    def show(self, output: Output, name: str, rows: list[Row], title: str) -> None:
        if title:
            output.line(title)
        output.table(rows[: self._options.num], VIEWS[name])
        if len(rows) > self._options.num:
            output.line(f"and {len(rows) - self._options.num} more")

    def live(self, output: Output) -> None:
        """Until q or an interruption."""
        before: Sample | None = None
        while True:
            wait_s = FIRST_S if before is None else self._options.interval
            rows = self.measure([self._view], functools.partial(self._wait, wait_s), before)
            if self._is_ended:
                return
            before = self._last
            print(CLEAR, end="")
            if self._view in rows:
                order = self._sorted_by[self._view]
                self.show(output, self._view, rows[self._view], f"{time.strftime('%H:%M:%S')}  {self._view} by {order}  (b t g s r q)")
            sys.stdout.flush()

    def _wait(self, seconds: float) -> None:
        """Returns earlier if a key changes what is shown."""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if ready:
            self.press(os.read(sys.stdin.fileno(), 1).decode(errors="ignore"))

    def press(self, key: str) -> None:
        if key in KEYS and KEYS[key] != self._view:
            self._view, self._groups = KEYS[key], None
        elif key == "s":
            names = [column.key for column in VIEWS[self._view]]
            self._sorted_by[self._view] = names[(names.index(self._sorted_by[self._view]) + 1) % len(names)]
        elif key == "r":
            self._is_reversed = not self._is_reversed
        elif key in ("q", ""):
            self._is_ended = True


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """The terminal tells each key at once, and shows none; as it was afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
