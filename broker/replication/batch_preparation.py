"""Checks of records in the worker process, where a check takes long: batches that are decompressed, walked or compressed again before they
are appended.

A kilobyte can decompress to 30 MB, and a batch can hold a million records. If this process checked them, one client would stop all others.
The worker has one queue for short checks and one for long ones (broker/worker/lines.py); the batch header decides which. The append follows
on the loop, without an await between the leader check and its end. The pipeline starts no request while an earlier one of the same
connection is checked, so each connection has one check at a time, and the queues are fair between connections.

Owner: the produce handler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.loop.deferred import Deferred
from broker.worker.jobs import CHECK_BATCHES, Outcome, Worker
from protocol.framing import has_own_buffer, keep
from protocol.records import HEADER_SIZE, unpack_header
from storage.batch_checks import BatchChecks, prepared_batches
from storage.validation import needs_long_check

if TYPE_CHECKING:
    from broker.replication.produce_path import AppendEntry
    from config.topic import LogConfig

COPIED_BYTES_MAX = 32 * 1024 * 1024
"""Copies of small requests that wait for their checks, over all connections; what comes on top is turned away, to be sent again.
Large requests are not copied: their frames wait, and count as request memory."""

SHORT_RECORDS_MAX = 10_000
SHORT_BYTES_MAX = 64 * 1024
"""Records that a short check walks, and bytes that it decompresses or compresses, at most: 10 ms."""

_RECORDS_COUNT_FIELD = -1


class _Preparation(NamedTuple):
    """A request whose records are being checked; `copied_bytes` are those of its entries that were copied for it."""

    entries: list[AppendEntry]
    now_ms: int
    is_zstd_allowed: bool
    copied_bytes: int
    count_time: Callable[[int], None] | None
    answer: Deferred


class BatchPreparer:
    """See the module's docstring."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._copied_bytes = 0

    def has_room(self, entries: Sequence[AppendEntry]) -> bool:
        return not self._copied_bytes or self._copied_bytes + size_of_copies(entries) <= COPIED_BYTES_MAX

    def prepare(
        self, entries: Sequence[AppendEntry], *, now_ms: int, is_zstd_allowed: bool, count_time: Callable[[int], None] | None = None
    ) -> Deferred:
        """Returns a Deferred of the entries to append, completed once their records are checked. Refused batches are among them: their
        append returns the error. An unexpected exception fails the Deferred. Abandoning the Deferred withdraws the request. `count_time`
        gets the ns of CPU time that the checks took."""
        kept: list[AppendEntry] = [(result, partition, keep(records)) for result, partition, records in entries]  # type: ignore[arg-type]
        work = _Preparation(kept, now_ms, is_zstd_allowed, size_of_copies(entries), count_time, Deferred())
        self._copied_bytes += work.copied_bytes
        self._submit(work, [_config_for_check(entry) for entry in kept])
        return work.answer

    def _submit(self, work: _Preparation, configs: list[LogConfig | None]) -> None:
        """Submit those entries to the worker that have a config."""
        kept, answer = work.entries, work.answer
        batches: list[memoryview] = [entry[2] for entry, config in zip(kept, configs, strict=True) if config is not None]  # type: ignore[misc]
        checks = BatchChecks([config for config in configs if config is not None], work.now_ms, work.is_zstd_allowed)

        def checked(outcome: Outcome | Exception) -> None:
            if work.count_time is not None and not isinstance(outcome, Exception):
                work.count_time(outcome.cpu_ns)
            if not isinstance(outcome, Exception) and _is_outdated(kept, configs):
                self._submit(work, [_config_for_check(entry) for entry in kept])
                return
            self._copied_bytes -= work.copied_bytes
            if isinstance(outcome, Exception):
                answer.complete(outcome)
                return
            prepared = iter(prepared_batches(checks, batches, outcome.value, outcome.buffers))  # type: ignore[arg-type]
            answer.complete(
                [entry if config is None else (*entry[:2], next(prepared)) for entry, config in zip(kept, configs, strict=True)]
            )

        job = self._worker.submit(CHECK_BATCHES, checks, batches, is_short=_is_short(kept, configs))
        answer.on_abandon = lambda: self._withdraw(job, work.copied_bytes)
        job.when_done(checked)

    def _withdraw(self, job: Deferred, copied_bytes: int) -> None:
        self._copied_bytes -= copied_bytes
        job.abandon()


def is_check_long(entry: AppendEntry) -> bool:
    """Whether the worker has to check its records. False for a partition that is not hosted here: the append refuses it."""
    _, partition, records = entry
    if partition is None:
        return False
    config = partition.log.config
    return not config.is_judged_by_header and needs_long_check(records, config)  # type: ignore[arg-type]


def _config_for_check(entry: AppendEntry) -> LogConfig | None:
    return entry[1].log.config if entry[1] is not None and is_check_long(entry) else None


def _is_outdated(entries: list[AppendEntry], configs: list[LogConfig | None]) -> bool:
    """Whether settings were altered during the check: the append would check the records again, on the loop."""
    for (_, partition, _), config in zip(entries, configs, strict=True):
        if config is not None and partition is not None and partition.log.config is not config and partition.log.config != config:
            return True
    return False


def size_of_copies(entries: Sequence[AppendEntry]) -> int:
    """Bytes of the entries that a wait would have to copy out of the shared receive buffer."""
    return sum(len(records) for _, _, records in entries if not has_own_buffer(records))  # type: ignore[arg-type, misc]


def _is_short(entries: list[AppendEntry], configs: list[LogConfig | None]) -> bool:
    """Judged by the headers. A false count ends a check early, and a check that meets more bytes than expected moves to the queue of
    long ones."""
    records_count = size_bytes = 0
    for (_, _, records), config in zip(entries, configs, strict=True):
        if config is not None and len(records) >= HEADER_SIZE:
            records_count += int(unpack_header(records)[_RECORDS_COUNT_FIELD])  # type: ignore[arg-type]
            size_bytes += len(records)
    return records_count <= SHORT_RECORDS_MAX and size_bytes <= SHORT_BYTES_MAX
