"""Checks of records that take long, off the loop: batches to be decompressed, walked or compressed anew before their append.

A kilobyte can decompress to 30 MB, and a batch hold a million records: done on the loop, one client would stop all others. The
checks run in a worker thread, one request at a time in the order of their arrival; the append itself follows on the loop, with no
await between its leader check and its end. Owner: the produce handler.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.framing import has_own_buffer, keep
from storage.validation import PreparedBatch, needs_long_check

if TYPE_CHECKING:
    from broker.replication.replica_manager import AppendEntry, ReplicaManager
    from config.topic import LogConfig

COPIED_BYTES_MAX = 32 * 1024 * 1024
"""Copies of small requests that wait for their checks, over all connections; what comes on top is turned away, to be sent again.
Large requests are not copied: their frames wait, and count as request memory."""

OnPrepared = Callable[["list[AppendEntry] | Exception"], None]


class _Waiting(NamedTuple):
    """One request in the line. `configs` has the settings of each entry that is to be checked, None for the others."""

    connection_id: int
    copied_bytes: int
    entries: list[AppendEntry]
    configs: list[LogConfig | None]
    now_ms: int
    is_zstd_allowed: bool
    on_done: OnPrepared

    def check(self) -> list[AppendEntry]:
        """In the thread: nothing but the copies and immutable settings is touched."""
        return [
            entry if config is None else (entry[0], entry[1], PreparedBatch(entry[2], config, self.now_ms, self.is_zstd_allowed))
            for entry, config in zip(self.entries, self.configs, strict=True)
        ]


class BatchPreparer:
    """The line of requests before the worker thread. `run_blocking(function)` returns a future that completes on the loop."""

    def __init__(self, replica_manager: ReplicaManager, run_blocking: Callable[..., Any]) -> None:
        self._replica_manager = replica_manager
        self._run_blocking = run_blocking
        self._line: deque[_Waiting] = deque()
        self._connections: Counter[int] = Counter()
        self._copied_bytes = 0

    def is_needed(self, connection_id: int, entries: Sequence[AppendEntry]) -> bool:
        """Whether the request has to go through the line: it takes long, or an earlier one of its connection is in it."""
        if self._line and connection_id in self._connections:
            return True
        for entry in entries:  # noqa: SIM110 - a generator takes twice the time, and this is asked of every produce
            if self._config_for_check(entry) is not None:
                return True
        return False

    def has_room(self, entries: Sequence[AppendEntry]) -> bool:
        return not self._line or self._copied_bytes + _size_of_copies(entries) <= COPIED_BYTES_MAX

    def submit(
        self, connection_id: int, entries: Sequence[AppendEntry], *, now_ms: int, is_zstd_allowed: bool, on_done: OnPrepared
    ) -> Callable[[], None]:
        """Check the entries when their turn comes, then call `on_done` on the loop: with what may be appended (refused
        batches included, the append tells why), or with an exception that nobody foresaw. What is returned withdraws the request."""
        kept: list[AppendEntry] = [(topic, index, keep(records)) for topic, index, records in entries]
        configs = [self._config_for_check(entry) for entry in kept]
        waiting = _Waiting(connection_id, _size_of_copies(entries), kept, configs, now_ms, is_zstd_allowed, on_done)
        self._line.append(waiting)
        self._connections[connection_id] += 1
        self._copied_bytes += waiting.copied_bytes
        if len(self._line) == 1:
            self._run_first()
        return lambda: self._withdraw(waiting)

    def _withdraw(self, waiting: _Waiting) -> None:
        """Its connection is gone: the line keeps its records no longer. The first in the line is in the thread's hands."""
        for position, each in enumerate(self._line):
            if each is waiting and position > 0:
                del self._line[position]
                self._forget(waiting)
                return

    def _forget(self, left: _Waiting) -> None:
        self._copied_bytes -= left.copied_bytes
        self._connections[left.connection_id] -= 1
        if not self._connections[left.connection_id]:
            del self._connections[left.connection_id]

    def _config_for_check(self, entry: AppendEntry) -> LogConfig | None:
        partition = self._replica_manager.find_partition(entry[0], entry[1])
        if partition is None:
            return None
        config = partition.log.config
        return config if not config.is_judged_by_header and needs_long_check(entry[2], config) else None

    def _run_first(self) -> None:
        self._run_blocking(self._line[0].check).add_done_callback(self._finish_first)

    def _finish_first(self, done: Any) -> None:
        finished = self._line.popleft()
        self._forget(finished)
        if self._line:
            self._run_first()
        error = done.exception()  # not raised here: the traceback would lead back to the future, and keep the records
        finished.on_done(done.result() if error is None else error)


def _size_of_copies(entries: Sequence[AppendEntry]) -> int:
    return sum(len(records) for _, _, records in entries if not has_own_buffer(records))
