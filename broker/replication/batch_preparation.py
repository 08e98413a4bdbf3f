"""Checks of records that take long, off the loop: batches to be decompressed, walked or compressed anew before their append.

A kilobyte can decompress to 30 MB, and a batch hold a million records: done on the loop, one client would stop all others. The checks
run in worker threads; the append itself follows on the loop, with no await between its leader check and its end.

A thread does one slice of one check and comes back to the loop. So a check holds the interpreter's lock for a slice at most (a thread
that computes on would keep the loop from it for 5 ms each time it waits for anything), and others have their turns between the slices.
There are two lines, each with a thread at a time, so that short checks never wait for long ones. A check is taken for short by its
header, and moves to the long line when SHORT_SLICES_MAX slices do not end it. In each line requests take turns. The
pipeline starts nothing behind a request that is checked, so a connection has one at a time, and the lines are fair by connection.

Owner: the produce handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from broker.deferred import Deferred
from protocol.framing import has_own_buffer, keep
from protocol.records import HEADER_SIZE, unpack_header
from storage.validation import PreparedBatch, needs_long_check

if TYPE_CHECKING:
    from broker.replication.replica_manager import AppendEntry, ReplicaManager
    from config.topic import LogConfig

COPIED_BYTES_MAX = 32 * 1024 * 1024
"""Copies of small requests that wait for their checks, over all connections; what comes on top is turned away, to be sent again.
Large requests are not copied: their frames wait, and count as request memory."""

SLICE_NS = 1_000_000
"""Nanoseconds of one check in a thread: as long as the loop may have to wait for the interpreter's lock. To hand a slice to a thread and
back costs 0.1 ms."""

SHORT_RECORDS_MAX = 10_000
SHORT_BYTES_MAX = 64 * 1024
"""Records that a short check walks, and bytes that it decompresses or compresses, at most: 10 ms."""
SHORT_SLICES_MAX = 16

PARTITIONS_PER_PIECE = 64
_RECORDS_COUNT_FIELD = -1


class _Check:
    """One request in a line. `configs` has the settings of each entry that is to be checked, None for the others. `slices_left` are
    those that it may have in the short line."""

    __slots__ = ("answer", "copied_bytes", "slices_left", "steps")

    def __init__(
        self, entries: list[AppendEntry], configs: list[LogConfig | None], now_ms: int, is_zstd_allowed: bool, copied_bytes: int
    ) -> None:
        self.answer = Deferred()
        self.copied_bytes = copied_bytes
        self.slices_left = SHORT_SLICES_MAX if _is_short(entries, configs) else 0
        self.steps = _steps(entries, configs, now_ms, is_zstd_allowed)

    def go_on(self) -> list[AppendEntry] | None:
        """In the thread: one slice. What may be appended, None when there is more to do."""
        end_ns = perf_counter_ns() + SLICE_NS
        try:
            while True:
                next(self.steps)
                if perf_counter_ns() >= end_ns:
                    return None
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _steps(
    entries: list[AppendEntry], configs: list[LogConfig | None], now_ms: int, is_zstd_allowed: bool
) -> Generator[None, None, list[AppendEntry]]:
    """In the thread: nothing but the requests' own bytes and immutable settings is touched."""
    prepared: list[AppendEntry] = []
    for entry, config in zip(entries, configs, strict=True):
        if config is None:
            prepared.append(entry)
            continue
        batch = PreparedBatch(entry[2], config)  # type: ignore[arg-type]
        yield from batch.check(now_ms, is_zstd_allowed)
        prepared.append((entry[0], entry[1], batch))
    return prepared


class _Line:
    """Checks that take turns in one thread."""

    def __init__(self, run_blocking: Callable[..., Any], on_slice: Callable[[_Check, Any], None]) -> None:
        self._run_blocking = run_blocking
        self._on_slice = on_slice
        self._checks: deque[_Check] = deque()
        self._is_running = False

    def add(self, check: _Check) -> None:
        self._checks.append(check)
        self.run_next()

    def remove(self, check: _Check) -> None:
        """Nobody waits for it any more; one that a thread is at ends with its slice."""
        if check in self._checks:
            self._checks.remove(check)

    def run_next(self) -> None:
        """Hand a slice of the check whose turn it is to the thread, unless it has one."""
        if self._checks and not self._is_running:
            self._is_running = True
            check = self._checks.popleft()
            self._run_blocking(check.go_on).add_done_callback(lambda done: self._slice_done(check, done))

    def _slice_done(self, check: _Check, done: Any) -> None:
        self._is_running = False
        self._on_slice(check, done)
        self.run_next()


class BatchPreparer:
    """See the module's docstring. `run_blocking(function)` returns a future that completes on the loop."""

    def __init__(self, replica_manager: ReplicaManager, run_blocking: Callable[..., Any]) -> None:
        self._replica_manager = replica_manager
        self._short = _Line(run_blocking, self._slice_done)
        self._long = _Line(run_blocking, self._slice_done)
        self._copied_bytes = 0

    def is_needed(self, entries: Sequence[AppendEntry]) -> bool:
        """Whether a check of the request takes long."""
        for entry in entries:  # noqa: SIM110 - a generator takes twice the time, and this is asked of every produce
            if self._config_for_check(entry) is not None:
                return True
        return False

    def is_needed_in_turns(self, entries: Sequence[AppendEntry]) -> Generator[None, None, bool]:
        for start in range(0, len(entries), PARTITIONS_PER_PIECE):
            if self.is_needed(entries[start : start + PARTITIONS_PER_PIECE]):
                return True
            yield
        return False

    def has_room(self, entries: Sequence[AppendEntry]) -> bool:
        return not self._copied_bytes or self._copied_bytes + _size_of_copies(entries) <= COPIED_BYTES_MAX

    def prepare(self, entries: Sequence[AppendEntry], *, now_ms: int, is_zstd_allowed: bool) -> Deferred:
        """A Deferred of what may be appended once the records are checked (refused batches included, the append tells why), or of an
        exception that nobody foresaw. Abandoned, it withdraws the request."""
        kept: list[AppendEntry] = [(topic, index, keep(records)) for topic, index, records in entries]  # type: ignore[arg-type]
        configs = [self._config_for_check(entry) for entry in kept]
        check = _Check(kept, configs, now_ms, is_zstd_allowed, _size_of_copies(entries))
        check.answer.on_abandon = lambda: self._withdraw(check)
        self._copied_bytes += check.copied_bytes
        self._line_of(check).add(check)
        return check.answer

    def _withdraw(self, check: _Check) -> None:
        self._copied_bytes -= check.copied_bytes
        self._line_of(check).remove(check)

    def _line_of(self, check: _Check) -> _Line:
        return self._short if check.slices_left > 0 else self._long

    def _config_for_check(self, entry: AppendEntry) -> LogConfig | None:
        partition = self._replica_manager.find_partition(entry[0], entry[1])
        if partition is None:
            return None
        config = partition.log.config
        return config if not config.is_judged_by_header and needs_long_check(entry[2], config) else None  # type: ignore[arg-type]

    def _slice_done(self, check: _Check, done: Any) -> None:
        if check.answer.is_abandoned:
            return
        error = done.exception()  # not raised here: the traceback would lead back to the future, and keep the records
        outcome = done.result() if error is None else error
        if outcome is None:
            check.slices_left -= 1
            self._line_of(check).add(check)
            return
        self._copied_bytes -= check.copied_bytes
        check.answer.complete(outcome)


def _size_of_copies(entries: Sequence[AppendEntry]) -> int:
    return sum(len(records) for _, _, records in entries if not has_own_buffer(records))  # type: ignore[arg-type]


def _is_short(entries: list[AppendEntry], configs: list[LogConfig | None]) -> bool:
    """By what the headers say: a false count ends a check early, and more bytes than expected send it to the long line."""
    records_count = size_bytes = 0
    for (_, _, records), config in zip(entries, configs, strict=True):
        if config is not None and len(records) >= HEADER_SIZE:
            records_count += unpack_header(records)[_RECORDS_COUNT_FIELD]  # type: ignore[arg-type]
            size_bytes += len(records)
    return records_count <= SHORT_RECORDS_MAX and size_bytes <= SHORT_BYTES_MAX
