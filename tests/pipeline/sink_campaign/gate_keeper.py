"""Who holds Spark's Python processes at a point of the sink's protocol, while the campaign kills something. See gated_sink."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from typing import Any

TRACE_MAX = 400
VISIT_TIMEOUT_S = 10.0


class Visitor:
    """A process that waits at a point until `let_go`, or until it is killed."""

    def __init__(self, told: dict[str, Any], connection: socket.socket) -> None:
        self.point: str = told["point"]
        self.pid: int = told["pid"]
        self.told = told
        self._connection = connection

    def let_go(self) -> None:
        """May be called again."""
        with contextlib.suppress(OSError):
            self._connection.sendall(b".")
        self._connection.close()

    def __str__(self) -> str:
        facts = ", ".join(f"{key} {told}" for key, told in self.told.items() if key != "point")
        return f"{self.point} ({facts})"


class Hold:
    """Holds the first visitor of one of `points` after `skipped_count` others have passed."""

    def __init__(self, points: Collection[str], skipped_count: int) -> None:
        self.points = points
        self._skipped_count = skipped_count
        self._arrived = threading.Event()
        self._visitor: Visitor | None = None

    def takes(self, point: str) -> bool:
        if point not in self.points or self._visitor is not None:
            return False
        self._skipped_count -= 1
        return self._skipped_count < 0

    def arrive(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._arrived.set()

    def wait(self, timeout_s: float) -> Visitor | None:
        """The visitor, None if none has come."""
        self._arrived.wait(timeout_s)
        return self._visitor


class GateKeeper:
    """Owns a port on loopback and the thread that serves it. `visits` counts the points, `trace` has the last visits."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self.visits: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        self._holds: list[Hold] = []
        self._thread = threading.Thread(target=self._serve, name="gate-keeper", daemon=True)
        self._thread.start()

    def hold(self, *points: str, skipped_count: int = 0) -> Hold:
        hold = Hold(points, skipped_count)
        with self._lock:
            self._holds.append(hold)
        return hold

    def cancel(self, hold: Hold) -> None:
        """Nobody is held by it any more."""
        with self._lock:
            if hold in self._holds:
                self._holds.remove(hold)
        visitor = hold.wait(0)
        if visitor is not None:
            visitor.let_go()

    def close(self) -> None:
        self._listening.close()
        for hold in list(self._holds):
            self.cancel(hold)

    def note(self, what: str) -> None:
        """Put what the campaign does between the visits."""
        self.trace.append(f"{time.monotonic() - self._begun_s:8.2f} {what}")

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.settimeout(VISIT_TIMEOUT_S)
            try:
                line = connection.makefile("rb").readline()
                self._receive(Visitor(json.loads(line), connection))
            except (OSError, ValueError):  # it was killed on its way
                connection.close()

    def _receive(self, visitor: Visitor) -> None:
        self.visits[visitor.point] += 1
        with self._lock:
            hold = next((each for each in self._holds if each.takes(visitor.point)), None)
            if hold is not None:
                self._holds.remove(hold)
        self.note(f"{'held at ' if hold else ''}{visitor}")
        if hold is None:
            visitor.let_go()
        else:
            hold.arrive(visitor)
