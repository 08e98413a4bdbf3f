"""ReplicaManager: the partitions this broker hosts, and the way of a produce or a fetch through them.

Owns the Partition objects and the two purgatories; the LogManager owns the logs. Everything here runs on the loop and to its
end: there is no await between a leader check and the append, which is what makes it atomic.

Handlers and the coordinators' log adapter call `append` and `fetch`; the metadata cache calls `apply`; server.py starts and
stops it. Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker.replication.delayed_fetch import DelayedFetch, OnFetched
from broker.replication.delayed_produce import DelayedProduce, OnAppended, PartitionAppendResult
from broker.replication.fetch_data import FetchParams, FetchTarget, PartitionRead
from broker.replication.group_commit import GroupCommitter, RunBlocking
from broker.replication.partition import ALL_IN_SYNC, IsrProposal, Partition
from broker.replication.purgatory import Purgatory
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError, is_descriptor_shortage
from storage.validation import AppendOrigin, RecordValidationError

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.metadata.image import MetadataDelta, PartitionChange
    from broker.metadata.metadata_cache import MetadataCache
    from broker.metrics import Metrics
    from config.server import ServerConfig
    from storage.log import Log
    from storage.log_manager import LogManager

log = logging.getLogger(__name__)

AppendEntry = tuple[str, int, memoryview]
"""Topic, partition index and the writable bytes of one batch."""

# Answers that are ordinary life of a cluster or a client's mistake; any other counts as a failed request in the metrics.
EXPECTED_APPEND_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class ReplicaManager:
    """See the module's docstring.

    `alter_isr` sends a proposal to the controller; with one node there are no followers and it is never called.
    `on_append_bug()` is called when an append fails in a way that nobody foresaw: the broker should stop.
    `on_log_dir_failure(directory, error)` is told once for each log directory that fails, after its partitions went offline.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        node_id: int,
        clock: Clock,
        metrics: Metrics,
        metadata: MetadataCache,
        log_manager: LogManager,
        run_blocking: RunBlocking,
        alter_isr: Callable[[IsrProposal], None] | None = None,
        on_log_dir_failure: Callable[[Path, StorageError], None] | None = None,
        on_append_bug: Callable[[], None] | None = None,
    ) -> None:
        self.replica_lag_time_max_ms: int = config.replica_lag_time_max_ms
        self.produce_purgatory = Purgatory(clock)
        self.fetch_purgatory = Purgatory(clock)
        self.node_id = node_id
        self._clock = clock
        self._metrics = metrics
        self._metadata = metadata
        self._log_manager = log_manager
        self._run_blocking = run_blocking
        self._alter_isr = alter_isr
        self._on_log_dir_failure = on_log_dir_failure
        self._on_append_bug = on_append_bug
        self._topics: dict[str, dict[int, Partition]] = {}
        self._unopened: set[tuple[str, int]] = set()  # replicas of this broker whose log could not be opened or made
        self._failed_log_dirs: set[Path] = set()
        self._is_loading = True  # until the first partitions came: those that were there before this start
        self._committers: dict[Path, GroupCommitter] = {}

    # -- finding -----------------------------------------------------------------------------------------------------

    def find_partition(self, topic: str, partition: int) -> Partition | None:
        """The hosted partition, also while its log directory is offline."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def get_partition(self, topic: str, partition: int) -> Partition:
        """The hosted partition, online. Raises KafkaError: KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER when another broker has
        it, so that clients refresh their metadata; UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.find_partition(topic, partition)
        if found is not None and not found.is_offline:
            return found
        if found is not None or (topic, partition) in self._unopened:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        image = self._metadata.find_topic(topic)
        if image is not None and 0 <= partition < len(image.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partitions(self) -> Iterator[Partition]:
        """Every hosted partition."""
        for partitions in self._topics.values():
            yield from partitions.values()

    # -- produce -----------------------------------------------------------------------------------------------------

    def append(
        self,
        entries: Sequence[AppendEntry],
        *,
        acks: int,
        timeout_ms: int,
        on_done: OnAppended,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        is_zstd_allowed: bool = True,
    ) -> DelayedProduce | None:
        """Append each entry to its partition; `on_done` gets the results in the entries' order.

        It is called before this returns None, or later by whatever ends the wait of the returned operation, which
        `produce_purgatory.cancel` may be given. A partition may occur once only. The records are not used after this returns."""
        results, pending = self.append_now(entries, acks, self._clock.now_ms(), is_zstd_allowed, origin)
        if pending is not None:
            return self.park(results, pending, acks, timeout_ms, on_done)
        on_done(results)
        return None

    def append_now(
        self, entries: Sequence[AppendEntry], acks: int, now_ms: int, is_zstd_allowed: bool, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> tuple[list[PartitionAppendResult], dict[Partition, PartitionAppendResult] | None]:
        """What `append` does before any wait: the results, and those that have to wait for their acks, to be given to `park`."""
        results: list[PartitionAppendResult] = []
        pending: dict[Partition, PartitionAppendResult] | None = None
        changed: list[tuple[Partition, bool]] = []
        for topic, index, records in entries:
            result = PartitionAppendResult(topic, index)
            results.append(result)
            try:
                partition = self.get_partition(topic, index)
                appended = partition.append_as_leader(records, acks=acks, now_ms=now_ms, origin=origin, is_zstd_allowed=is_zstd_allowed)
            except KafkaError as error:
                self._note_refusal(result, error)
                continue
            except StorageError as error:
                self.fail_log_dir(partition.log.directory.parent, error)
                result.fail(ErrorCode.KAFKA_STORAGE_ERROR)
                continue
            except Exception:
                # A bug of ours half-way through an append: what is in memory may not be what is on disk. Recovery makes them one.
                if self._on_append_bug is not None:
                    self._on_append_bug()
                raise
            metrics = partition.metrics
            metrics.messages_in += appended.records_count
            metrics.bytes_in += appended.size_bytes
            metrics.total_produce_requests += 1
            result.base_offset = appended.base_offset
            result.last_offset = last_offset = appended.last_offset
            result.log_append_time_ms = appended.log_append_time_ms
            result.log_start_offset = appended.log_start_offset
            changed.append((partition, self._advance(partition)))
            if acks == ALL_IN_SYNC:
                is_waiting = partition.log.high_watermark <= last_offset
            else:
                is_waiting = acks != 0 and partition.waits_for_flush and partition.log.durable_end_offset <= last_offset
            if is_waiting:
                if pending is None:
                    pending = {}
                pending[partition] = result
        self._after_append(changed)
        return results, pending

    def park(
        self,
        results: list[PartitionAppendResult],
        pending: dict[Partition, PartitionAppendResult],
        acks: int,
        timeout_ms: int,
        on_done: OnAppended,
    ) -> DelayedProduce | None:
        """Wait for the acks of what `append_now` left pending; as `append` from there on."""
        operation = DelayedProduce(results, pending, acks, on_done)
        is_done = self.produce_purgatory.try_complete_else_watch(operation, tuple(pending), timeout_ms)
        return None if is_done else operation

    def _note_refusal(self, result: PartitionAppendResult, error: KafkaError) -> None:
        result.fail(error.code, error.message)
        if isinstance(error, RecordValidationError):
            result.record_errors = error.record_errors
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else strangers' names would fill the metrics
            metrics = self._metrics.topic(result.topic)
            metrics.total_produce_requests += 1
            if error.code not in EXPECTED_APPEND_ERRORS:
                metrics.failed_produce_requests += 1

    def _advance(self, partition: Partition) -> bool:
        return partition.maybe_advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)

    def _after_append(self, changed: list[tuple[Partition, bool]]) -> None:
        """Begin to flush what has to be, and wake who waits for what was appended. After all partitions of the request are
        appended: a fetch that waits for several gets them together."""
        for partition, is_high_watermark_moved in changed:
            if partition.has_flush_limit and partition.is_flush_due:
                self.request_flush((partition,))
            if is_high_watermark_moved:
                self.on_progress(partition)
            elif partition.followers:
                self.fetch_purgatory.notify(partition)  # followers read up to the log end

    # -- fetch -------------------------------------------------------------------------------------------------------

    def fetch(self, params: FetchParams, targets: list[FetchTarget], on_done: OnFetched) -> DelayedFetch | None:
        """Read the targets in their order; `on_done` gets one PartitionRead for each and owns their records.

        It is called before this returns None, or later by whatever ends the wait of the returned operation, which
        `fetch_purgatory.cancel` may be given."""
        outcome = self.fetch_now(params, targets)
        if isinstance(outcome, DelayedFetch):
            return self.park_fetch(outcome, on_done)
        on_done(outcome)
        return None

    def fetch_now(self, params: FetchParams, targets: list[FetchTarget]) -> list[PartitionRead] | DelayedFetch:
        """What `fetch` does before any wait: the reads, whose records are the caller's, or what is to be given to `park_fetch`.

        Answers at once when there are min_bytes, nothing to wait for, or an error or divergence to tell; else waits at most
        max_wait_ms. Each partition occurs once."""
        may_wait = params.max_wait_ms > 0 and bool(targets)
        if may_wait and params.min_bytes == 1 and params.replica_id < 0:
            idle = self._find_idle(params, targets)
            if idle is not None:
                return DelayedFetch(params, targets, idle, read_again=self._read, is_idle=True)
        reads = self._read(params, targets, is_arrival=True)
        readable_bytes = 0
        for read in reads:
            readable_bytes += len(read.records)
            if read.error_code is not ErrorCode.NONE or read.diverging_epoch is not None:
                return reads
        if not may_wait or readable_bytes >= params.min_bytes:
            return reads
        for read in reads:
            read.release()
        targets_by_partition = {
            partition: target for target in targets if (partition := self.find_partition(target.topic or "", target.partition)) is not None
        }
        return DelayedFetch(params, targets, targets_by_partition, read_again=self._read, is_idle=False)

    def park_fetch(self, operation: DelayedFetch, on_done: OnFetched) -> DelayedFetch | None:
        """Wait for what `fetch_now` did not find; as `fetch` from there on."""
        operation.on_done = on_done
        if operation.is_idle:
            self.fetch_purgatory.watch(operation, operation.targets_by_partition, operation.params.max_wait_ms)
            return operation
        is_done = self.fetch_purgatory.try_complete_else_watch(operation, operation.targets_by_partition, operation.params.max_wait_ms)
        return None if is_done else operation

    def _find_idle(self, params: FetchParams, targets: list[FetchTarget]) -> dict[Partition, FetchTarget] | None:
        """The targets by their partitions if there is nothing at all to tell of any; None when they have to be read.

        By offsets alone: 0.4 µs a partition against 2.5 µs for reading it."""
        idle: dict[Partition, FetchTarget] = {}
        isolation, topics = params.isolation, self._topics
        for target in targets:
            partitions = topics.get(target.topic)  # type: ignore[arg-type]
            partition = None if partitions is None else partitions.get(target.partition)
            if partition is None or not partition.is_idle_for(target, isolation):
                return None
            idle[partition] = target
        for partition in idle:
            partition.metrics.total_fetch_requests += 1
        return idle

    def _read(self, params: FetchParams, targets: list[FetchTarget], is_arrival: bool = False) -> list[PartitionRead]:
        """Read each target, the first batch of the first non-empty one even if it is larger than every limit (KIP-74).

        A follower's position is noted only when its request arrives."""
        reads: list[PartitionRead] = []
        advanced: list[Partition] = []
        left_bytes = params.max_bytes
        is_first = True
        try:
            for target in targets:
                read = self._read_target(params, target, min(target.max_bytes, left_bytes), is_first, advanced if is_arrival else None)
                reads.append(read)
                size_bytes = len(read.records)
                if size_bytes:
                    is_first = False
                    left_bytes = max(0, left_bytes - size_bytes)
        except BaseException:
            for read in reads:
                read.release()  # else their segment files stay open for good
            raise
        for partition in advanced:
            self.on_progress(partition)
        return reads

    def _read_target(
        self, params: FetchParams, target: FetchTarget, max_bytes: int, minimum_one_batch: bool, advanced: list[Partition] | None
    ) -> PartitionRead:
        assert target.topic is not None, "targets with an unknown topic id are answered by the handler"
        partition: Partition | None = None
        try:
            partition = self.get_partition(target.topic, target.partition)
            if advanced is not None:
                partition.metrics.total_fetch_requests += 1
            if target.topic_id != partition.topic_id and any(target.topic_id):
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            leader_end_offset = partition.log.log_end_offset
            read = partition.read(target, params, max_bytes, minimum_one_batch)
            if advanced is not None and params.replica_id >= 0 and read.diverging_epoch is None:
                self._note_follower(params, target, partition, leader_end_offset, advanced)
            return read
        except KafkaError as error:
            return PartitionRead(target, error.code)
        except StorageError as error:
            assert partition is not None
            self.fail_log_dir(partition.log.directory.parent, error)
            return PartitionRead(target, ErrorCode.KAFKA_STORAGE_ERROR)

    def _note_follower(
        self, params: FetchParams, target: FetchTarget, partition: Partition, leader_end_offset: int, advanced: list[Partition]
    ) -> None:
        if partition.update_follower(
            params.replica_id,
            fetch_offset=target.fetch_offset,
            log_start_offset=target.log_start_offset,
            leader_end_offset=leader_end_offset,
            broker_epoch=params.replica_epoch,
            now_ms=self._clock.monotonic_ms(),
        ):
            advanced.append(partition)

    # -- what partitions need (PartitionEnvironment) -----------------------------------------------------------------

    def alter_isr(self, proposal: IsrProposal) -> None:
        assert self._alter_isr is not None, "a broker with followers is given a way to the controller"
        self._alter_isr(proposal)

    def is_broker_epoch_stale(self, node_id: int, broker_epoch: int) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and broker.epoch > broker_epoch

    def is_isr_eligible(self, node_id: int, broker_epoch: int) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def on_progress(self, partition: Partition) -> None:
        """The high watermark moved, or something every waiting request of the partition has to look at."""
        self.produce_purgatory.notify(partition)
        self.fetch_purgatory.notify(partition)

    def maybe_shrink_isrs(self) -> None:
        """Drop the replicas that fell behind. To be called every half of replica.lag.time.max.ms."""
        now_ms = self._clock.monotonic_ms()
        for partition in tuple(self.partitions()):
            partition.maybe_shrink_isr(now_ms)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: make, lead, follow and delete partitions, take over their settings. Deletions come first, for a
        topic may be deleted and made anew under its name."""
        for topic in delta.deleted_topics:
            self._delete_partitions(tuple(self._topics.get(topic.name, {}).values()))
            self._unopened = {key for key in self._unopened if key[0] != topic.name}
        changed: list[Partition] = []
        for change in delta.changed_partitions:
            if self.node_id in change.image.replicas:
                partition = self._apply_change(change)
                if partition is not None:
                    changed.append(partition)
            elif (hosted := self.find_partition(change.topic.name, change.partition)) is not None:
                self._delete_partitions((hosted,))
        for name in delta.changed_topic_configs:
            hosted_partitions = tuple(self._topics.get(name, {}).values())
            for partition in hosted_partitions:
                partition.config_changed(self._metadata.log_config(name))
                changed.append(partition)
        self._is_loading = self._is_loading and not delta.changed_partitions
        for partition in changed:
            self.on_progress(partition)

    def _apply_change(self, change: PartitionChange) -> Partition | None:
        topic, index, image = change.topic, change.partition, change.image
        if (topic.name, index) in self._unopened:
            return None  # offline until the next start, as in Kafka
        try:
            partition = self.find_partition(topic.name, index) or self._open_partition(topic.name, index, topic.topic_id)
            if partition.is_offline:
                return None
            if image.leader == self.node_id:
                partition.make_leader(image, now_ms=self._clock.monotonic_ms())
            else:
                partition.make_follower(image)
            return partition
        except StorageError as error:
            log.error("cannot open partition=%s-%d error=%s", topic.name, index, error)
            self._unopened.add((topic.name, index))
            return None

    def _open_partition(self, topic: str, index: int, topic_id: bytes) -> Partition:
        """A Partition over its log, which is made if this broker has none of that topic id yet."""
        partition_log = self._log_manager.find_log(topic, index)
        if partition_log is None:
            logs = self._log_manager
            if self._is_loading and len(logs.online_directories) < len(logs.directories):
                # Made anew in another directory it would answer with offsets from 0 and hide every acknowledged record.
                raise StorageError("its log may lie in a directory that is offline")
            partition_log = logs.create_log(topic, index, topic_id, self._metadata.log_config(topic), self._clock.now_ms())
        partition = Partition(
            topic, index, topic_id, partition_log, node_id=self.node_id, environment=self, metrics=self._metrics.topic(topic)
        )
        self._topics.setdefault(topic, {})[index] = partition
        return partition

    def _delete_partitions(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            partition.is_deleted = True
            partition.is_leader = False
            hosted = self._topics[partition.topic]
            del hosted[partition.partition]
            if not hosted:
                del self._topics[partition.topic]
            if not partition.is_offline:
                self._log_manager.delete_log(partition.topic, partition.partition)
            self.on_progress(partition)
            if not hosted:
                self._metrics.forget_topic(partition.topic)

    # -- disks -------------------------------------------------------------------------------------------------------

    def request_flush(self, partitions: Iterable[Partition]) -> None:
        """Make the partitions' logs durable off the loop, by group commit."""
        committers: dict[GroupCommitter, None] = {}
        for partition in partitions:
            if not partition.is_offline:
                committer = self._committer_of(partition.log)
                committer.add(partition)
                committers[committer] = None
        for committer in committers:
            committer.start()

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once every flush requested so far has ended."""
        left = len(self._committers)

        def count_down() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                callback()

        if left == 0:
            callback()
        for committer in tuple(self._committers.values()):
            committer.when_flushed(count_down)

    def fail_log_dir(self, path: Path | str, error: StorageError) -> None:
        """The log directory at `path`, or the one that `path` lies in, is lost: its partitions answer KAFKA_STORAGE_ERROR from
        now on, and who waits for them is told. Telling it twice does no harm."""
        path = Path(path)
        if is_descriptor_shortage(error):
            log.error("out of descriptors dir=%s error=%s", path, error)
            return
        lost = [
            partition
            for partition in self.partitions()
            if not partition.is_offline and partition.log.directory.parent in (path, *path.parents)
        ]
        log_dirs = {partition.log.directory.parent: None for partition in lost} or {path: None}
        for partition in lost:
            partition.is_offline = True
        for log_dir in log_dirs:
            if log_dir not in self._failed_log_dirs:
                self._failed_log_dirs.add(log_dir)
                log.error("log directory failed dir=%s error=%s", log_dir, error)
                if self._on_log_dir_failure is not None:
                    self._on_log_dir_failure(log_dir, error)
        for partition in lost:
            self.on_progress(partition)

    def _committer_of(self, partition_log: Log) -> GroupCommitter:
        log_dir = partition_log.directory.parent
        committer = self._committers.get(log_dir)
        if committer is None:
            committer = self._committers[log_dir] = GroupCommitter(
                log_dir, run_blocking=self._run_blocking, on_flushed=self._on_flushed, on_failure=self.fail_log_dir
            )
        return committer

    def _on_flushed(self, partition: Partition) -> None:
        self._advance(partition)
        self.on_progress(partition)
