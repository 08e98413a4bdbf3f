"""DelayedFetch: a fetch that waits for enough bytes, or for something else to answer.

Only offsets decide whether it can complete, and it holds no records. On completion, or at its timeout, the partitions are read once more.
Each event looks at one partition: the bytes of the others were counted when they changed.

Source: kafka.server.DelayedFetch; the cases carry its letters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from broker.replication.fetch.fetch_data import (
    NO_EPOCH,
    FetchablePartition,
    FetchIsolation,
    FetchParams,
    FetchTarget,
    ThrottledFetchParams,
)
from broker.replication.fetch.log_reads import count_available_bytes, find_diverging_epoch
from broker.replication.partition_role import FOLLOWER, LEADER
from broker.replication.purgatory import DelayedOperation
from protocol.errors import KafkaError
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.replication.fetch.fetch_session import FetchSession

OnFetched = Callable[[list[FetchTarget]], None]
"""Reads these targets once more and answers."""


class DelayedFetch(DelayedOperation):
    """Parked on every partition it asks for. `targets_by_partition` holds those, each with its target.

    Within a session it has no keys: the session is notified of its partitions' changes and tries it. `targets_by_partition` is then what
    the session watches, and at completion the partitions that have changed are read.

    `is_idle` says that no partition has anything to answer, so none is looked at before the fetch waits. `answer` is set when it is
    parked."""

    __slots__ = (
        "_available_bytes",
        "_available_total",
        "_targets",
        "answer",
        "is_idle",
        "params",
        "session",
        "targets_by_partition",
    )

    def __init__(
        self,
        params: FetchParams,
        targets: list[FetchTarget],
        targets_by_partition: dict[FetchablePartition, FetchTarget],
        *,
        is_idle: bool,
        session: FetchSession | None = None,
    ) -> None:
        self.is_completed, self.keys, self.timer = False, (), None  # as DelayedOperation does, without the call
        self.params = params
        self.targets_by_partition = targets_by_partition
        self.is_idle = is_idle
        self.answer: OnFetched | None = None
        self._targets = targets
        self.session = session
        self._available_bytes: dict[FetchablePartition, int] = {}
        self._available_total = 0

    def try_complete(self, key: Hashable | None) -> bool:
        """Whether there is something to answer (Cases A–F, H), or min_bytes in all (Case G)."""
        if key is not None:
            return self._is_satisfied_by(key)  # type: ignore[arg-type]
        looked_at = self.targets_by_partition if self.session is None else [target.watched for target in self.session.changed]
        return any(self._is_satisfied_by(partition) for partition in looked_at if partition is not None)

    def on_complete(self) -> None:
        assert self.answer is not None
        targets = self._targets
        if self.session is not None:
            targets = [target for target in self.session.changed if target.watched is not None]
        self.answer(targets)

    def _is_satisfied_by(self, partition: FetchablePartition) -> bool:
        target = self.targets_by_partition[partition]
        params = self.params
        # Case A: not the leader; C: deleted; D: its log directory is offline; E: a newer leader epoch.
        if partition.role is not LEADER and (params.fetch_only_leader or partition.role is not FOLLOWER):
            return True
        if target.current_leader_epoch != NO_EPOCH and target.current_leader_epoch != partition.leader_epoch:
            return True
        # Case B: the fetcher is not a replica any more.
        if params.replica_id >= 0 and params.replica_id not in partition.followers:
            return True
        isolation = params.isolation
        end_offset = partition.log.log_end_offset if isolation is FetchIsolation.LOG_END else partition.end_offset(isolation)
        if target.fetch_offset < end_offset and params.min_bytes <= 1 and params.quota is None and _has_records(partition, target):
            return True  # Case G, which is cheaper to see than the two that come before it in Kafka
        # Case F: the log was truncated below the fetch offset.
        if target.fetch_offset > end_offset and self._is_truncated(partition, target):
            return True
        # Case H: the fetcher's log diverges from ours since a truncation here.
        if target.last_fetched_epoch != NO_EPOCH and _is_diverging(partition, target):
            return True
        # Case G: enough bytes over all partitions.
        if target.fetch_offset >= end_offset:
            return False
        if isinstance(params, ThrottledFetchParams) and params.holds_back(partition):
            return False
        if params.min_bytes <= 1:
            return _has_records(partition, target)
        try:
            return self._count_available(partition, target, end_offset) >= params.min_bytes
        except (KafkaError, StorageError):
            # Retention has deleted these records, or the disk has failed. The re-read gives the fetcher the error. The code that notified
            # us must not see it: it may be an append whose records are in the log by now.
            return True

    def _is_truncated(self, partition: FetchablePartition, target: FetchTarget) -> bool:
        """A consumer may legally wait between the high watermark and the log end: only beyond the log end is it out of range."""
        return self.params.isolation is FetchIsolation.LOG_END or target.fetch_offset > partition.log.log_end_offset

    def _count_available(self, partition: FetchablePartition, target: FetchTarget, end_offset: int) -> int:
        """Counts the bytes that all partitions together have; `partition` is counted again, the others have not changed."""
        available = count_available_bytes(partition.log, target.fetch_offset, end_offset, target.max_bytes, at_least=self.params.min_bytes)
        self._available_total += available - self._available_bytes.get(partition, 0)
        self._available_bytes[partition] = available
        return self._available_total


def _has_records(partition: FetchablePartition, target: FetchTarget) -> bool:
    """Whether there is a batch to read, as the log ends beyond the fetch offset: one that ends in an empty segment may have none."""
    segments = partition.log.segments
    if segments.active.size_bytes:
        return True
    try:
        return not segments.has_nothing_from(target.fetch_offset)
    except (OSError, StorageError):
        return True  # the re-read meets it again, and answers


def _is_diverging(partition: FetchablePartition, target: FetchTarget) -> bool:
    try:
        return find_diverging_epoch(partition.log, target) is not None
    except KafkaError:
        return True  # the epoch's end is not known any more: the re-read answers with that error
