"""Questions of a fetch to a partition's log, on leader and follower alike: where two logs diverge, and how many bytes a read would give.

All functions are free of effects. The reads themselves are `Partition.read`. Source: kafka.cluster.Partition, DelayedFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.fetch.fetch_data import NO_EPOCH, DivergingEpoch
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.replication.fetch.fetch_data import FetchTarget
    from storage.file_slice import FileSlice
    from storage.log import Log
    from storage.transaction_index import AbortedTransaction


def find_diverging_epoch(log: Log, target: FetchTarget) -> DivergingEpoch | None:
    """Returns where the fetcher has to truncate its log; None when its log is a prefix of `log` (KIP-595, KIP-320).

    Raises OFFSET_OUT_OF_RANGE when that is not known."""
    if target.last_fetched_epoch == log.leader_epochs.latest_epoch and log.log_start_offset <= target.fetch_offset <= log.log_end_offset:
        return None  # nearly always: it is within our latest epoch
    end = log.end_offset_for_epoch(target.last_fetched_epoch)
    if not end.is_defined or end.epoch == NO_EPOCH or target.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.epoch < target.last_fetched_epoch or end.end_offset < target.fetch_offset:
        return DivergingEpoch(end.epoch, end.end_offset)
    return None


def aborted_transactions(log: Log, offset: int, records: FileSlice | bytes) -> list[AbortedTransaction]:
    """Returns the aborted transactions with records in `records`, which were read from `offset`. Where that fails, or has to wait for the
    disk (ColdRead), `records` are released: the whole read is tried again."""
    try:
        return log.aborted_transactions(offset, records)
    except BaseException:
        if not isinstance(records, bytes):
            records.release()
        raise


def count_available_bytes(log: Log, offset: int, end_offset: int, max_bytes: int, *, at_least: int) -> int:
    """Returns the bytes of whole batches in [offset, end_offset), at most `max_bytes`. If the batches continue in a later segment, at
    least `at_least` is returned: a read ends with its segment, so a wait for more bytes would never end (DelayedFetch's Case F)."""
    if segment_end_offset(log, offset, end_offset) < end_offset:
        return max(at_least, 1)
    records = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one_batch=True)
    size_bytes = len(records)
    if not isinstance(records, bytes):
        records.release()
    return min(size_bytes, max_bytes)


def segment_end_offset(log: Log, offset: int, end_offset: int) -> int:
    """Where a read from `offset` ends at the latest: no read goes beyond its segment."""
    segments = log.segments
    return min(end_offset, segments.end_offset_of(segments.floor_index(offset), log.log_end_offset))
