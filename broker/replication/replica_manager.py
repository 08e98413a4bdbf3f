"""ReplicaManager: the partitions this broker hosts, and the way of a produce or a fetch through them.

Owns the Partition objects and the two purgatories; the LogManager owns the logs. Everything here runs on the loop and to its
end: there is no await between a leader check and the append, which is what makes it atomic.

Handlers and the coordinators' log adapter call `append` and `fetch`; the metadata cache calls `apply`; server.py starts and
stops it. Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from broker.loop_job import LoopJob, OnBusy, nobody
from broker.metadata.image import PartitionChange
from broker.replication.countdown import countdown
from broker.replication.delayed_fetch import DelayedFetch, OnFetched
from broker.replication.delayed_produce import DelayedProduce, OnAppended, PartitionAppendResult
from broker.replication.fetch_data import FetchParams, FetchTarget
from broker.replication.fetch_reader import FetchReader
from broker.replication.group_commit import GroupCommitter, RunBlocking
from broker.replication.new_partitions import NewPartitions
from broker.replication.partition import ALL_IN_SYNC, IsrProposal, Partition
from broker.replication.purgatory import Purgatory
from broker.replication.removals import PartitionRemovals
from broker.replication.settings_takeover import SettingsTakeover
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError, is_descriptor_shortage
from storage.validation import AppendOrigin, PreparedBatch, RecordValidationError

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.metrics import Metrics
    from config.server import ServerConfig
    from storage.log import Log
    from storage.log_manager import LogManager

log = logging.getLogger("barnabas.replication")

AppendEntry = tuple[str, int, memoryview | PreparedBatch]
"""Topic, partition index and the writable bytes of one batch, or the batch as a thread checked it ahead."""

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

NEW_PARTITIONS_AT_ONCE = 10
"""Partitions of one change of the metadata that are made at once, 0.3 to 1 ms each; the others follow while requests are served."""
NEW_PARTITIONS_PER_TURN = 4
NEW_PARTITIONS_SLICE_US = 2_000  # fewer are made in a turn where the disk is slow


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
        on_busy: OnBusy = nobody,
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
        self.reader = FetchReader(self, self._topics, self.fetch_purgatory, clock)
        self._waiting = NewPartitions()
        self._making = LoopJob(clock, self._make_waiting, on_busy)
        self._settings_takeover = SettingsTakeover(clock, self._take_over_settings, on_busy)
        self._on_demand_count = 0  # since the last turn
        self._unopened: set[tuple[str, int]] = set()  # replicas of this broker whose log could not be opened or made
        self._failed_log_dirs: set[Path] = set()
        self._is_loading = True  # until the partitions have come that were there before this start
        self._committers: dict[str, GroupCommitter] = {}  # by log directory
        self._removals = PartitionRemovals(
            clock,
            log_manager,
            run_blocking,
            on_closed=self._note_closed,
            on_left=self._make_waiting_later,
            on_failure=self.fail_log_dir,
            on_busy=on_busy,
        )

    # -- finding -----------------------------------------------------------------------------------------------------

    def find_partition(self, topic: str, partition: int) -> Partition | None:
        """The hosted partition, also while its log directory is offline; None while it waits to be made."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def get_partition(self, topic: str, partition: int) -> Partition:
        """The hosted partition, online. Raises KafkaError: KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER when another broker has
        it, so that clients refresh their metadata; UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.find_partition(topic, partition) or self._make_on_demand(topic, partition)
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
                partition = self.find_partition(topic, index)
                if partition is None or partition.is_offline:
                    partition = self.get_partition(topic, index)  # makes it or says why not
                appended = partition.append_as_leader(records, acks=acks, now_ms=now_ms, origin=origin, is_zstd_allowed=is_zstd_allowed)
            except KafkaError as error:
                self._note_refusal(result, error, len(records))
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
            has_moved = partition.maybe_advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)
            if partition.followers or partition.has_flush_limit or self._is_watched(partition):
                changed.append((partition, has_moved))
            if acks == ALL_IN_SYNC:
                is_waiting = partition.log.high_watermark <= last_offset
            else:
                is_waiting = acks != 0 and partition.waits_for_flush and partition.log.durable_end_offset <= last_offset
            if is_waiting:
                if pending is None:
                    pending = {}
                pending[partition] = result
        if changed:
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

    def _note_refusal(self, result: PartitionAppendResult, error: KafkaError, size_bytes: int) -> None:
        result.fail(error.code, error.message)
        if isinstance(error, RecordValidationError):
            result.record_errors = error.record_errors
        if error.code not in EXPECTED_APPEND_ERRORS and (partition := self.find_partition(result.topic, result.partition)) is not None:
            result.log_start_offset = partition.log.log_start_offset  # told with what is wrong with the records, as in Kafka
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else strangers' names would fill the metrics
            metrics = self._metrics.topic(result.topic)
            metrics.total_produce_requests += 1
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                metrics.bytes_rejected += size_bytes  # as it came, also where only recompression made it too large
            if error.code not in EXPECTED_APPEND_ERRORS:
                metrics.failed_produce_requests += 1

    def _advance(self, partition: Partition) -> bool:
        return partition.maybe_advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)

    def _is_watched(self, partition: Partition) -> bool:
        """Whether a produce, a fetch or a fetch session waits for the partition to change."""
        return partition in self.fetch_purgatory.watchers or bool(partition.sessions) or partition in self.produce_purgatory.watchers

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
        """Read the targets in their order, waiting for them if asked to; see FetchReader.fetch. The Fetch handler uses `reader`."""
        return self.reader.fetch(params, targets, on_done)

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
        self.reader.wake(partition)

    def maybe_shrink_isrs(self) -> None:
        """Drop the replicas that fell behind. To be called every half of replica.lag.time.max.ms."""
        now_ms = self._clock.monotonic_ms()
        for partition in tuple(self.partitions()):
            partition.maybe_shrink_isr(now_ms)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: make, lead, follow and delete partitions, take over their settings. Deletions come first, for a
        topic may be deleted and made anew under its name."""
        if delta.deleted_topics:
            deleted_names = {topic.name for topic in delta.deleted_topics}
            self._removals.add([partition for name in deleted_names for partition in self._topics.pop(name, {}).values()])
            self._unopened = {key for key in self._unopened if key[0] not in deleted_names}
            self._waiting.discard_topics(deleted_names)
        changed: list[Partition] = []
        moved_away: list[Partition] = []
        new_count = 0
        end_us = self._clock.monotonic_us() + NEW_PARTITIONS_SLICE_US
        for change in delta.changed_partitions:
            if self.node_id in change.image.replicas:
                if not self._is_loading and self.find_partition(change.topic.name, change.partition) is None:
                    new_count += 1
                    is_time_over = new_count > NEW_PARTITIONS_AT_ONCE or self._clock.monotonic_us() >= end_us
                    if is_time_over or self._removals.is_leaving(change.topic.name, change.partition):
                        self._waiting.add((change.topic.name, change.partition))
                        continue
                partition = self._apply_change(change)
                if partition is not None:
                    changed.append(partition)
            elif (hosted := self.find_partition(change.topic.name, change.partition)) is not None:
                moved_away.append(hosted)
        self._unhost(moved_away)
        for added in delta.added_partitions:
            self._waiting.add_range(added.topic.name, added.start, added.stop)
        self._settings_takeover.add(delta.changed_topic_configs)
        self._is_loading = self._is_loading and not delta.changed_partitions
        for partition in changed:
            self.on_progress(partition)
        self._make_waiting_later()

    def end_loading(self) -> None:
        """All partitions that were there before this start have come: later ones are new."""
        self._is_loading = False

    def stop(self) -> None:
        """Make no more partitions: those that still wait are made at the next start."""
        self._waiting.clear()
        self._removals.stop()
        self._settings_takeover.stop()
        self._making.stop()

    def when_made(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        """Call `callback` once every partition of these new topics that this broker hosts is there, as far as its disks let it be."""
        self._waiting.when_none_of(topics, callback)

    def _take_over_settings(self, topic: str) -> int:
        partitions = tuple(self._topics.get(topic, {}).values())
        for partition in partitions:
            partition.config_changed(self._metadata.log_config(topic))
            self.on_progress(partition)
        return len(partitions)

    def _can_be_made(self) -> Iterator[tuple[str, int]]:
        """The partitions that wait, but for those that a deleted one of their name is in the way of: its end brings them on."""
        return (key for key in self._waiting if not self._removals.is_leaving(*key))

    def _make_waiting_later(self) -> None:
        if not self._making.is_waiting and next(self._can_be_made(), None) is not None:
            self._making.resume()

    def _make_waiting(self) -> bool:
        """Make a few of the partitions that wait, as the metadata has them now; whether there are more. Until then requests for very many
        of them are told NOT_LEADER_OR_FOLLOWER, as by a Kafka broker that has not taken the commit over."""
        self._on_demand_count = 0
        end_us = self._clock.monotonic_us() + NEW_PARTITIONS_SLICE_US
        for key in tuple(islice(self._can_be_made(), NEW_PARTITIONS_PER_TURN)):
            self._make_one_waiting(key)
            if self._clock.monotonic_us() >= end_us:
                break
        return next(self._can_be_made(), None) is not None

    def get_for_loading(self, topic: str, partition: int) -> Partition:
        """`get_partition` for a coordinator, which loads one in each turn: one that waits is made, however many others ask for."""
        if (topic, partition) in self._waiting and not self._removals.is_leaving(topic, partition):
            self._make_one_waiting((topic, partition))
        return self.get_partition(topic, partition)

    def _make_on_demand(self, topic: str, partition: int) -> Partition | None:
        """A partition that waits is made when it is asked for: few clients ever see that it was not there."""
        if (topic, partition) not in self._waiting or self._on_demand_count >= NEW_PARTITIONS_AT_ONCE:
            return None
        if self._removals.is_leaving(topic, partition):
            return None
        self._on_demand_count += 1
        return self._make_one_waiting((topic, partition))

    def _make_one_waiting(self, key: tuple[str, int]) -> Partition | None:
        name, index = key
        topic = self._metadata.find_topic(name)
        made = None
        if topic is not None and self.node_id in topic.partitions[index].replicas:
            made = self._apply_change(PartitionChange(topic, index, topic.partitions[index]))
        self._waiting.discard(key)
        return made

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

    def _unhost(self, partitions: Sequence[Partition]) -> None:
        """Stop serving them; their directories go off the loop, after their checkpoint entries."""
        for partition in partitions:
            hosted = self._topics[partition.topic]
            del hosted[partition.partition]
            if not hosted:
                del self._topics[partition.topic]
        self._removals.add(partitions)

    def _note_closed(self, partition: Partition) -> None:
        self.on_progress(partition)
        if partition.topic not in self._topics:
            self._metrics.forget_topic(partition.topic)

    def when_removed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the directories of the partitions deleted so far are out of the way of new ones."""
        self._removals.when_left(callback)

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
        note_flushed = countdown(len(self._committers), callback)
        for committer in tuple(self._committers.values()):
            committer.when_flushed(note_flushed)

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
        committer = self._committers.get(partition_log.log_dir)
        if committer is None:
            log_dir = partition_log.directory.parent
            committer = self._committers[partition_log.log_dir] = GroupCommitter(
                log_dir, run_blocking=self._run_blocking, on_flushed=self._on_flushed, on_failure=self.fail_log_dir
            )
        return committer

    def _on_flushed(self, partition: Partition) -> None:
        self._advance(partition)
        self.on_progress(partition)
