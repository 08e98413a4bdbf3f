"""FetchReader: reads the partitions of this broker for a fetch, and parks the fetch when there is not enough to answer. It is the reading
half of Kafka's ReplicaManager.

The Fetch handler calls its methods in this order. `find_wait` returns the wait of a fetch that has nothing to read yet. Otherwise `read`,
or `read_one` for one partition, reads, and `delay` returns the wait if that was not enough. `park` then makes the fetch wait.

Source: kafka.server.ReplicaManager.fetchMessages, readFromLog.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.loop.cold_reads import bring_in, read_in_turns
from broker.replication.fetch.delayed_fetch import DelayedFetch, OnFetched
from broker.replication.fetch.fetch_data import (
    FetchablePartition,
    FetchParams,
    FetchTarget,
    PartitionRead,
    RackFetchParams,
    RedirectedRead,
    ThrottledFetchParams,
)
from broker.replication.partition_role import OFFLINE
from protocol.errors import ErrorCode, KafkaError
from protocol.uuids import ZERO_UUID
from storage.errors import StorageError
from storage.page_cache import ColdRead, policy

if TYPE_CHECKING:
    from broker.loop.blocking import RunBlocking
    from broker.loop.clock import Clock
    from broker.loop.deferred import Deferred
    from broker.replication.fetch.fetch_session import FetchSession
    from broker.replication.fetch.replica_selector import RackAwareReplicaSelector
    from broker.replication.hosted_partitions import HostedPartitions
    from broker.replication.log_directories import LogDirectories
    from broker.replication.partition import Partition
    from broker.replication.waiting_requests import WaitingRequests


class FetchReader:
    """See the module's docstring."""

    def __init__(
        self,
        hosted: HostedPartitions,
        waiting: WaitingRequests,
        log_directories: LogDirectories,
        clock: Clock,
        selector: RackAwareReplicaSelector | None,
    ) -> None:
        self._hosted = hosted
        self._topics = hosted.topics
        self._waiting = waiting
        self._purgatory = waiting.fetches
        self._log_directories = log_directories
        self._clock = clock
        self.selector = selector

    def find_wait(self, params: FetchParams, targets: list[FetchTarget], session: FetchSession | None) -> DelayedFetch | None:
        """Returns the DelayedFetch, to be given to `park`, of a fetch whose targets have nothing to answer; None when they have to be read.

        Offsets alone decide, for a consumer that waits for any byte and for a follower that has everything. Each partition occurs once.
        Within a `session` that watches, the targets are the changed partitions, and the fetch waits for all of the session."""
        if params.max_wait_ms <= 0 or not (targets or session is not None):
            return None
        if params.replica_id >= 0:
            level = self._find_level(params, targets) if params.min_bytes > 0 and session is None else None
            return None if level is None else self._delayed(params, targets, level, None, is_idle=self._record_caught_up(params, level))
        if params.min_bytes != 1 or params.rack_id:
            return None
        idle: dict[FetchablePartition, FetchTarget] = {}  # 0.4 µs a partition against 2.5 µs for reading it
        isolation, topics = params.isolation, self._topics
        for target in targets:
            partitions = topics.get(target.topic)  # type: ignore[arg-type]
            partition = None if partitions is None else partitions.get(target.partition)
            if partition is None or not partition.is_idle_for(target, isolation):
                return None
            idle[partition] = target
        for found in idle:
            found.metrics.total_fetch_requests += 1
        if session is not None:
            for watched, target in idle.items():
                session.watch(target, watched)
                session.drop_if_idle(target)
        return self._delayed(params, targets, idle, session, is_idle=session is None or not session.changed)

    def read_one(self, params: FetchParams, target: FetchTarget, *, may_wait_for_disk: bool, is_arrival: bool) -> PartitionRead:
        """Read the only target of a fetch: at least its first batch, even if that is larger than every limit (KIP-74). The caller releases
        the records. Raises ColdRead, without any effect, when the read would wait for the disk and `may_wait_for_disk` is False
        (storage/page_cache.py).

        A follower's position is recorded only if `is_arrival`: when its request arrives, and not on a later read of the same request."""
        advanced: list[Partition] | None = [] if is_arrival else None
        max_bytes = target.max_bytes if target.max_bytes < params.max_bytes else params.max_bytes
        policy.may_wait = may_wait_for_disk
        try:
            read = self._read_target(params, target, max_bytes, True, advanced)
        finally:
            policy.may_wait = True
        if advanced:
            self._waiting.wake(advanced[0])
        return read

    def read(
        self,
        params: FetchParams,
        targets: list[FetchTarget],
        run_blocking: RunBlocking | None,
        *,
        is_arrival: bool = False,
        arrival: Deferred | None = None,
    ) -> Generator[Deferred | None, Any, list[PartitionRead]]:
        """Read all targets, as `read_one` does, except that the guaranteed first batch is that of the first target that is not empty.
        Where a read would wait for the disk, a thread reads that part into memory meanwhile. `arrival` is the read of the disk that the
        first target waits for."""
        reads: list[PartitionRead] = []
        advanced: list[Partition] | None = [] if is_arrival else None
        left_bytes = params.max_bytes
        is_first = True
        try:
            for target in targets:
                max_bytes = target.max_bytes if target.max_bytes < left_bytes else left_bytes
                if arrival is None:
                    policy.may_wait = run_blocking is None
                    try:
                        read = self._read_target(params, target, max_bytes, is_first, advanced)
                    except ColdRead as missing:
                        assert run_blocking is not None, "a read that may wait for the disk raises no ColdRead"
                        arrival = bring_in(missing, run_blocking)
                    finally:
                        policy.may_wait = True
                if arrival is not None:
                    attempt = partial(self._read_target, params, target, max_bytes, is_first, advanced)
                    read = yield from read_in_turns(attempt, run_blocking, arrival)
                    arrival = None
                reads.append(read)
                if read.size_bytes:
                    is_first = False
                    left_bytes = max(0, left_bytes - read.size_bytes)
                yield None
            for partition in advanced or ():
                self._waiting.wake(partition)
                yield None
        except BaseException:
            for read in reads:  # they will not be sent, and would keep their segment files open
                read.release()
            for partition in advanced or ():  # what the follower has told counts, also when its connection has ended amid the read
                self._waiting.wake(partition)
            raise
        return reads

    def delay(
        self, params: FetchParams, targets: list[FetchTarget], reads: list[PartitionRead], session: FetchSession | None
    ) -> DelayedFetch | None:
        """Returns the DelayedFetch, to be given to `park`, of a fetch for which `reads` are not enough, and releases them. None when
        they are its answer: they have min_bytes, there is nothing to wait for, or there is an error or divergence to report."""
        if session is not None:
            for partition, target in self._by_partition(targets).items():
                session.watch(target, partition)
        readable_bytes = 0
        for read in reads:
            readable_bytes += read.size_bytes
            if read.error_code is not ErrorCode.NONE or read.diverging_epoch is not None or read.preferred_read_replica >= 0:
                return None  # `has_news`, without the call
        if readable_bytes >= params.min_bytes or params.max_wait_ms <= 0 or not (targets or session is not None):
            return None
        for read in reads:
            read.release()
        return self._delayed(params, targets, {} if session is not None else self._by_partition(targets), session, is_idle=False)

    def park(self, operation: DelayedFetch, answer: OnFetched) -> bool:
        """Wait for at most max_wait_ms until there is enough to answer; then call `answer` with the targets to read once more. Returns
        False if `answer` was called now, True if it will be called later. `ReplicaManager.fetch_purgatory.cancel` ends the wait without
        a call."""
        operation.answer = answer
        keys = () if operation.session is not None else operation.targets_by_partition
        if operation.is_idle:
            self._purgatory.watch(operation, keys, operation.params.max_wait_ms)
            return True
        return not self._purgatory.try_complete_else_watch(operation, keys, operation.params.max_wait_ms)

    def _by_partition(self, targets: list[FetchTarget]) -> dict[FetchablePartition, FetchTarget]:
        find = self._hosted.find
        return {partition: target for target in targets if (partition := find(target.topic or "", target.partition)) is not None}

    def _delayed(
        self,
        params: FetchParams,
        targets: list[FetchTarget],
        targets_by_partition: dict[FetchablePartition, FetchTarget],
        session: FetchSession | None,
        *,
        is_idle: bool,
    ) -> DelayedFetch:
        if session is None:
            return DelayedFetch(params, targets, targets_by_partition, is_idle=is_idle)
        operation = DelayedFetch(params, targets, session.watched, is_idle=is_idle, session=session)
        session.parked = operation
        return operation

    def _find_level(self, params: FetchParams, targets: list[FetchTarget]) -> dict[FetchablePartition, FetchTarget] | None:
        """Returns the targets by their partitions if the fetcher is a replica of all of them and has everything that they have; None
        when they have to be read. It takes 1 µs a partition, reading takes 6."""
        level: dict[FetchablePartition, FetchTarget] = {}
        replica_id, broker_epoch, topics = params.replica_id, params.replica_epoch, self._topics
        for target in targets:
            partitions = topics.get(target.topic)  # type: ignore[arg-type]
            partition = None if partitions is None else partitions.get(target.partition)
            if partition is None or not partition.is_caught_up(target, replica_id, broker_epoch):
                return None
            level[partition] = target
        return level

    def _record_caught_up(self, params: FetchParams, level: dict[FetchablePartition, FetchTarget]) -> bool:
        """Record that the follower has everything, and answer the requests that waited for that. Returns whether the follower still has
        everything then."""
        now_ms, replica_id, broker_epoch = self._clock.monotonic_ms(), params.replica_id, params.replica_epoch
        advanced: list[FetchablePartition] = []
        for partition, target in level.items():
            partition.metrics.total_fetch_requests += 1
            if partition.record_caught_up(target, replica_id, broker_epoch, now_ms):
                advanced.append(partition)
        if not advanced:
            return True
        for partition in advanced:
            self._waiting.wake(partition)
        return all(partition.is_caught_up(target, replica_id, broker_epoch) for partition, target in level.items())

    def _read_target(
        self, params: FetchParams, target: FetchTarget, max_bytes: int, minimum_one_batch: bool, advanced: list[Partition] | None
    ) -> PartitionRead:
        assert target.topic is not None, "targets with an unknown topic id are answered by the handler"
        partition: Partition | None = None
        read: PartitionRead | None = None
        try:
            partitions = self._topics.get(target.topic)
            partition = None if partitions is None else partitions.get(target.partition)
            if partition is None or partition.role is OFFLINE:
                partition = self._hosted.get(target.topic, target.partition)  # made on demand, or raises why it cannot be read
            if advanced is not None:
                partition.metrics.total_fetch_requests += 1
            if target.topic_id != partition.topic_id and target.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            if isinstance(params, ThrottledFetchParams) and params.holds_back(partition):
                max_bytes, minimum_one_batch = 0, False
            if self.selector is not None and isinstance(params, RackFetchParams):
                replica_id = self.selector.find_replica(partition, params, target)
                if replica_id is not None:
                    partition.check_leader_epoch(target.current_leader_epoch)
                    return RedirectedRead(target, partition.log, replica_id)
            leader_end_offset = partition.log.log_end_offset
            read = partition.read(target, params, max_bytes, minimum_one_batch)
            if advanced is not None and params.replica_id >= 0 and read.diverging_epoch is None:
                reached_offset = target.fetch_offset
                if (
                    not read.size_bytes
                    and max_bytes
                    and reached_offset < leader_end_offset
                    and _has_nothing_from(partition, reached_offset)
                ):
                    reached_offset = leader_end_offset
                self._note_follower(params, target, partition, reached_offset, leader_end_offset, advanced)
            return read
        except KafkaError as error:
            if read is not None:
                read.release()  # the follower is refused after the read: its records would keep their segment file open
            return PartitionRead(target, error.code)
        except StorageError as error:
            assert partition is not None
            self._log_directories.fail(partition.log.directory.parent, error)
            return PartitionRead(target, ErrorCode.KAFKA_STORAGE_ERROR)

    def _note_follower(
        self,
        params: FetchParams,
        target: FetchTarget,
        partition: Partition,
        reached_offset: int,
        leader_end_offset: int,
        advanced: list[Partition],
    ) -> None:
        if partition.update_follower(
            params.replica_id,
            current_leader_epoch=target.current_leader_epoch,
            fetch_offset=reached_offset,
            log_start_offset=target.log_start_offset,
            leader_end_offset=leader_end_offset,
            broker_epoch=params.replica_epoch,
            now_ms=self._clock.monotonic_ms(),
        ):
            advanced.append(partition)


def _has_nothing_from(partition: Partition, offset: int) -> bool:
    """Whether a follower at `offset` has all records although the log ends at a higher offset: a power cut may leave a log that ends in
    an empty segment. Such a follower counts as being at the end, or it would never be in sync again (UnifiedLog.read: "we are beyond the
    end of the last segment with no data fetched")."""
    try:
        return partition.log.segments.has_nothing_from(offset)
    except OSError as error:
        raise StorageError(f"cannot read the end of {partition.log.directory}: {error}", path=partition.log.directory) from error
