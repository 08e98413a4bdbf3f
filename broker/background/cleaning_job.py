"""The jobs of a worker process that compacts one log: storage's compaction at a limited rate, and the fsyncs that make its result durable.

The process belongs to one cleaner, so it may wait: for the disk, and for its share of log.cleaner.io.max.bytes.per.second.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.compaction.plan import CompactionPlan, CompactionResult
from storage.disk import Disk
from storage.errors import StorageError, is_descriptor_shortage
from storage.files import sync_directory

NAME = "broker.background.cleaning_job:compact_log"
SYNC_NAME = "broker.background.cleaning_job:sync_log"
WAIT_MAX_S = 0.1  # between two checks whether the job was withdrawn


class CompactionJob(NamedTuple):
    """The arguments. Without a limit of `bytes_per_second` the job never waits, and may run on a broker's loop."""

    plan: CompactionPlan
    bytes_per_second: float | None


class SyncJob(NamedTuple):
    """The arguments of the job after the swap."""

    directory: Path
    disk: Disk


def compact_log(job: CompactionJob, _buffers: Sequence[memoryview]) -> Generator[None, None, tuple[CompactionResult, Sequence[bytes]]]:
    """The job. Returns the result of the compaction. StorageError when the disk fails, or when files of the log are missing."""
    from storage.compaction.cleaner import compact  # late: the broker needs only the names of this module

    limit = job.bytes_per_second
    begun_s, moved_bytes = 0.0 if limit is None else time.monotonic(), 0
    steps = compact(job.plan)
    try:
        while True:
            try:
                moved_bytes += next(steps)
            except StopIteration as end:
                return end.value, ()
            except OSError as error:
                if is_descriptor_shortage(error):
                    raise  # not the fault of a disk
                raise StorageError(f"cannot compact {job.plan.directory}: {error}", path=job.plan.directory) from error
            yield
            while limit is not None and (ahead_s := moved_bytes / limit - (time.monotonic() - begun_s)) > 0:
                time.sleep(min(ahead_s, WAIT_MAX_S))
                yield
    finally:
        steps.close()


def sync_log(job: SyncJob, _buffers: Sequence[memoryview]) -> Generator[None, None, tuple[None, Sequence[bytes]]]:
    """The job after the swap: makes its renames durable. The directory has another name if its topic was deleted."""
    yield
    sync_directory(job.directory, missing_ok=True, disk=job.disk)
    return None, ()
