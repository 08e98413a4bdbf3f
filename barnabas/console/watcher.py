"""One cluster under watch: a thread polls it every 5 s while somebody looks, and keeps the history.

Nobody looks when no page was asked for IDLE_S; then nothing is asked, unless the console was told to watch always: once a minute then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError
from barnabas.cli.settings import Settings
from barnabas.console.facts import Partition, Snapshot
from barnabas.console.history import SERIES_MAX, History
from barnabas.console.poll import Poll
from barnabas.console.values import Values

POLL_S = 5.0
IDLE_S = 30.0
"""A page that is open asks again every 5 s."""
ALWAYS_S = 60.0
GAP_S = 120.0
"""A rate over a longer time would hide what happened in it."""
_T = TypeVar("_T")


class Watcher:
    """Owns the thread, the newest snapshot and the history of one cluster, and a connection for what single pages ask."""

    def __init__(self, name: str, settings: Settings, *, always: bool = False, series_max: int = SERIES_MAX) -> None:
        self.name = name
        self.settings = settings
        self.history = History(series_max)
        self.values = Values(settings.schemas, settings.timeout_s)
        self.snapshot: Snapshot | None = None
        self.error = ""
        """Why the last poll failed; "" if it did not."""
        self.polls = 0
        self._always = always
        self._looked_s = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_due = False
        self._poll = Poll(lambda: Connection(settings))
        self._before: Snapshot | None = None
        self._sizes_before: tuple[float, Mapping[tuple[Partition, int], int]] | None = None
        self._asking = threading.Lock()
        self._own: Connection | None = None

    def look(self, wait_s: float = 0.0) -> Snapshot | None:
        """The newest snapshot; somebody looks. Waits that long for the first one."""
        with self._changed:
            idle = time.monotonic() - self._looked_s > IDLE_S
            self._looked_s = time.monotonic()
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name=f"watch {self.name}", daemon=True)
                self._thread.start()
            elif idle:
                self._changed.notify_all()
            if self.snapshot is None and wait_s:
                self._changed.wait_for(lambda: self.polls or self._is_closed, wait_s)
            return self.snapshot

    def wait_for_poll(self, polls: int, timeout_s: float) -> int:
        """Returns once there were more than `polls` polls, or after that time; the number of polls."""
        with self._changed:
            self._changed.wait_for(lambda: self.polls > polls or self._is_closed, timeout_s)
            return self.polls

    def poll_soon(self) -> None:
        """Something was changed by a page: the next snapshot is to have it."""
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def wait_until(self, is_seen: Callable[[Snapshot], bool], timeout_s: float) -> None:
        """Returns once the newest snapshot shows a change, or after that time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or (self.snapshot is not None and is_seen(self.snapshot)), timeout_s)

    def ask(self, question: Callable[[Connection], _T]) -> _T:
        """What `question` returns, with a connection that nobody else uses meanwhile. Raises CommandError, OSError."""
        with self._asking:
            own = self._own
            if own is not None:
                try:
                    return question(own)
                except OSError:
                    # A broker closes what was idle for connections.max.idle.ms: a new connection says whether more is wrong.
                    own.close()
                    self._own = None
            self._own = Connection(self.settings)
            try:
                return question(self._own)
            except OSError:
                self._own.close()
                self._own = None
                raise

    @property
    def is_closed(self) -> bool:
        """Whether the console ends: streams end then."""
        return self._is_closed

    def close(self) -> None:
        """A second time does nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_closed:
            self._poll_once()
            with self._changed:
                self.polls += 1
                self._changed.notify_all()
                self._wait()
        self._poll.close()

    def _poll_once(self) -> None:
        try:
            snapshot = self._poll.ask()
        except (CommandError, OSError) as e:
            self.error = str(e)
            return
        self.history.add(snapshot.time_s, self._measure(snapshot))
        if self.polls % 100 == 99:
            self.history.keep({"records", "bytes", "lag", *map(topic_series, snapshot.topics), *map(group_series, snapshot.groups)})
        self._before, self.snapshot, self.error = snapshot, snapshot, ""

    def _wait(self) -> None:
        """Until the next poll is due: the condition's lock is held."""
        self._changed.wait_for(lambda: self._is_closed or self._is_due, POLL_S)
        self._is_due = False
        if not self._is_closed and time.monotonic() - self._looked_s > IDLE_S:
            self._changed.wait_for(
                lambda: self._is_closed or time.monotonic() - self._looked_s <= IDLE_S, ALWAYS_S - POLL_S if self._always else None
            )

    def _measure(self, now: Snapshot) -> dict[str, float]:
        """The values of the series at this time."""
        values: dict[str, float] = {group_series(name): group.lag for name, group in now.groups.items() if group.lag is not None}
        values["lag"] = sum(group.lag or 0 for group in now.groups.values())
        values |= self._byte_rate(now)
        before = self._before
        if before is None or not 0 < now.time_s - before.time_s < GAP_S:
            return values
        seconds, total = now.time_s - before.time_s, 0.0
        for name, topic in now.topics.items():
            keys = [(name, each.number) for each in topic.partitions]
            came = sum(max(end - before.ends.get(key, end), 0) for key in keys if (end := now.ends.get(key)) is not None)
            values[topic_series(name)] = came / seconds
            total += 0 if topic.is_internal else came
        values["records"] = total / seconds
        return values

    def _byte_rate(self, now: Snapshot) -> dict[str, float]:
        """By how much the leaders' logs have grown; what retention deleted meanwhile does not count."""
        sizes = self._poll.replica_sizes
        if sizes is None:
            return {}
        at_s = self._poll.sizes_at_s
        before, self._sizes_before = self._sizes_before, (at_s, sizes)
        if before is None or not 0 < at_s - before[0] < GAP_S:
            return {}
        came = sum(
            max(sizes.get(key, 0) - before[1].get(key, 0), 0)
            for name, topic in now.topics.items()
            for each in topic.partitions
            if (key := ((name, each.number), each.leader)) in before[1]
        )
        return {"bytes": came / (at_s - before[0])}


def topic_series(name: str) -> str:
    return f"topic {name}"


def group_series(name: str) -> str:
    return f"group {name}"
