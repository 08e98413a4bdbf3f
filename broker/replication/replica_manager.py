"""ReplicaManager: the partitions that this broker hosts, for handlers, coordinators and background tasks.

It builds the parts that do the work, a file each: HostedPartitions, ProducePath, FetchReader, BrokerMetadataPublisher and LogDirectories.
Every method runs on the loop without an await. The Produce and Fetch handlers use `produce_path` and `reader` directly. Source:
kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker.observability.limited_log import PARTITION_LINES_INTERVAL_MS, PARTITION_LINES_MAX, LimitedLog
from broker.replication.fetch.fetch_reader import FetchReader
from broker.replication.fetcher.fetcher_control import FetcherControl, NoFetchers
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.isr.isr_expiration import IsrExpiration
from broker.replication.log_directories import LogDirectories
from broker.replication.metadata.broker_metadata_publisher import BrokerMetadataPublisher
from broker.replication.metadata.leadership_log import LeadershipLog
from broker.replication.moves.truncation_checkpoints import TruncationCheckpoints
from broker.replication.partition_environment import AlterIsr, ClusterEnvironment
from broker.replication.produce_path import ProducePath
from broker.replication.quotas import ReplicationQuotas
from broker.replication.waiting_requests import WaitingRequests
from config.server import RACK_AWARE_SELECTOR
from storage.validation import AppendOrigin

if TYPE_CHECKING:
    from broker.loop.blocking import RunBlocking
    from broker.loop.clock import Clock
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.observability.metrics import Metrics
    from broker.replication.delayed_produce import DelayedProduce, OnAppended
    from broker.replication.fetch.replica_selector import RackAwareReplicaSelector
    from broker.replication.moves.directory_moves import DirectoryMoves
    from broker.replication.moves.replica_move import AssignDirectory
    from broker.replication.partition import Partition
    from broker.replication.quotas import ReplicationQuota
    from config.server import ServerConfig
    from storage.errors import StorageError
    from storage.log_manager import LogManager
    from storage.verification import TransactionAppend

log = logging.getLogger("barnabas.replication")


class ReplicaManager:
    """See the module's docstring.

    `alter_isr` sends a proposal to the controller (IsrChanges.submit). Without it, as with one node, no partition may have followers.
    `fetchers` start and stop the replica fetchers of following partitions. `on_append_bug()` is called when an append fails unexpectedly:
    the broker should stop. `on_log_dir_failure(directory, error)` is called once for each log directory that fails, after its partitions
    went offline. `assign_directory` tells the controller in which log directory a replica is (BrokerLifecycle.assign_directory).
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
        alter_isr: AlterIsr | None = None,
        fetchers: FetcherControl | None = None,
        on_log_dir_failure: Callable[[Path, StorageError], None] | None = None,
        on_append_bug: Callable[[], None] | None = None,
        assign_directory: AssignDirectory | None = None,
    ) -> None:
        self.node_id = node_id
        self._waiting = waiting = WaitingRequests(clock)
        self.produce_purgatory = waiting.produces
        self.fetch_purgatory = waiting.fetches
        self.delete_records_purgatory = waiting.record_deletions
        self.new_leader_followers = waiting.new_leader_followers
        environment = _make_environment(config, clock, metadata, waiting, alter_isr, fetchers or NoFetchers())
        self.isr_counts = environment.isr_counts
        self._hosted = hosted = HostedPartitions(
            node_id=node_id,
            clock=clock,
            metrics=metrics,
            metadata=metadata,
            log_manager=log_manager,
            environment=environment,
            make_on_demand=lambda topic, partition: self._metadata_publisher.make_on_demand(topic, partition),
            on_disk_failure=self.fail_log_dir,
            on_flush_due=lambda partition: self.request_flush((partition,)),
            on_misplaced=assign_directory,
        )
        self.quotas = ReplicationQuotas(config, metadata, node_id, clock)
        self._on_log_dir_failure = on_log_dir_failure
        self._log_directories = LogDirectories(hosted, waiting, clock, run_blocking, self._lose_log_dir)
        self._metadata_publisher = self._make_metadata_publisher(
            clock, metrics, metadata, log_manager, run_blocking, LeadershipLog(environment.events)
        )
        self.produce_path = ProducePath(hosted, waiting, self._log_directories, clock, metrics, on_append_bug)
        lag_max_ms = config.replica_lag_time_max_ms
        self._isr_expiration = None if alter_isr is None else IsrExpiration(hosted, clock, replica_lag_time_max_ms=lag_max_ms)
        self._truncation_checkpoints = TruncationCheckpoints(log_manager, run_blocking, self.fail_log_dir)
        self._moves: DirectoryMoves | None = None
        self._make_moves = partial(
            _make_moves,
            hosted,
            waiting,
            self._log_directories,
            self._metadata_publisher,
            self.quotas.moves,
            self._truncation_checkpoints,
            config=config,
            clock=clock,
            log_manager=log_manager,
            run_blocking=run_blocking,
            assign_directory=assign_directory,
        )
        self._log_manager = log_manager
        self.reader = FetchReader(hosted, waiting, self._log_directories, clock, _make_selector(config, metadata))

    def _make_metadata_publisher(
        self,
        clock: Clock,
        metrics: Metrics,
        metadata: MetadataCache,
        log_manager: LogManager,
        run_blocking: RunBlocking,
        leadership_log: LeadershipLog,
    ) -> BrokerMetadataPublisher:
        return BrokerMetadataPublisher(
            self._hosted,
            self._waiting,
            clock=clock,
            metrics=metrics,
            metadata=metadata,
            log_manager=log_manager,
            run_blocking=run_blocking,
            quotas=self.quotas,
            leadership_log=leadership_log,
            on_removal_failure=self._log_directories.fail,
        )

    # -- the partitions ----------------------------------------------------------------------------------------------

    def find_partition(self, topic: str, partition: int) -> Partition | None:
        """As HostedPartitions.find."""
        return self._hosted.find(topic, partition)

    def get_partition(self, topic: str, partition: int) -> Partition:
        """As HostedPartitions.get, which lists its errors."""
        return self._hosted.get(topic, partition)

    def get_for_loading(self, topic: str, partition: int) -> Partition:
        """As BrokerMetadataPublisher.get_for_loading: for a coordinator."""
        return self._metadata_publisher.get_for_loading(topic, partition)

    def partitions(self) -> Iterator[Partition]:
        """Every hosted partition."""
        return iter(self._hosted)

    def each_partition(self) -> Iterator[Partition]:
        """As `partitions`, but partitions may be added and removed while it is iterated, as a job in slices does."""
        return self._hosted.each()

    def on_progress(self, partition: Partition) -> None:
        """Wake the partition's waiting requests: the high watermark has moved, or its state has changed."""
        self._waiting.wake(partition)

    # -- requests ----------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[tuple[str, int, memoryview]],
        *,
        acks: int,
        timeout_ms: int,
        on_done: OnAppended,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction: TransactionAppend | None = None,
    ) -> DelayedProduce | None:
        """As ProducePath.append."""
        return self.produce_path.append(batches, acks=acks, timeout_ms=timeout_ms, on_done=on_done, origin=origin, transaction=transaction)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """As BrokerMetadataPublisher.apply."""
        self._metadata_publisher.apply(delta)
        if self._moves is not None:
            self._moves.drop_ended()

    def end_loading(self) -> None:
        """Called when all partitions of before this start have been applied: later ones are new."""
        self._metadata_publisher.end_loading()
        if self._isr_expiration is not None:
            self._isr_expiration.start()
        if futures := self._log_manager.futures.futures():
            self.moves.resume(futures)

    def stop(self) -> None:
        """Create no more partitions (those that still wait are created at the next start), and propose no more ISR changes."""
        self._metadata_publisher.stop()
        if self._moves is not None:
            self._moves.stop()
        if self._isr_expiration is not None:
            self._isr_expiration.stop()

    def when_made(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        """As BrokerMetadataPublisher.when_made."""
        self._metadata_publisher.when_made(topics, callback)

    def when_removed(self, callback: Callable[[], None]) -> None:
        """As BrokerMetadataPublisher.when_removed."""
        self._metadata_publisher.when_removed(callback)

    # -- disks -------------------------------------------------------------------------------------------------------

    @property
    def moves(self) -> DirectoryMoves:
        """The replicas that move between log directories."""
        if self._moves is None:
            self._moves = self._make_moves()
        return self._moves

    @property
    def moves_lag_max(self) -> int:
        """The largest lag of a copy in another log directory, in records."""
        return 0 if self._moves is None else self._moves.lag_max

    def request_flush(self, partitions: Iterable[Partition]) -> None:
        """As LogDirectories.request_flush."""
        self._log_directories.request_flush(partitions)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """As LogDirectories.when_flushed."""
        self._log_directories.when_flushed(callback)

    def may_truncate(self, partition: Partition, offset: int) -> bool:
        """As TruncationCheckpoints.may_truncate."""
        return self._truncation_checkpoints.may_truncate(partition.log, offset)

    def fail_log_dir(self, path: Path | str, error: StorageError) -> None:
        """As LogDirectories.fail."""
        self._log_directories.fail(path, error)

    def _lose_log_dir(self, path: Path, error: StorageError) -> None:
        if self._on_log_dir_failure is not None:
            self._on_log_dir_failure(path, error)
        if self._moves is not None:
            self._moves.drop_ended()


def _make_environment(
    config: ServerConfig,
    clock: Clock,
    metadata: MetadataCache,
    waiting: WaitingRequests,
    alter_isr: AlterIsr | None,
    fetchers: FetcherControl,
) -> ClusterEnvironment:
    return ClusterEnvironment(
        metadata,
        waiting,
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        alter_isr=alter_isr,
        fetchers=fetchers,
        events=LimitedLog(log, clock, lines_max=PARTITION_LINES_MAX, interval_ms=PARTITION_LINES_INTERVAL_MS),
    )


def _make_moves(
    hosted: HostedPartitions,
    waiting: WaitingRequests,
    log_directories: LogDirectories,
    metadata_publisher: BrokerMetadataPublisher,
    quota: ReplicationQuota,
    truncation_checkpoints: TruncationCheckpoints,
    *,
    config: ServerConfig,
    clock: Clock,
    log_manager: LogManager,
    run_blocking: RunBlocking,
    assign_directory: AssignDirectory | None,
) -> DirectoryMoves:
    from broker.replication.moves.directory_moves import DirectoryMoves  # late: few brokers have several log directories
    from broker.replication.moves.replica_move import MoveTools

    tools = MoveTools(
        clock=clock,
        log_manager=log_manager,
        log_directories=log_directories,
        waiting=waiting,
        run_blocking=run_blocking,
        quota=quota,
        may_truncate=truncation_checkpoints.may_truncate,
        on_left=metadata_publisher.make_new_later,
        assign_directory=assign_directory,
    )
    copies_max = config.num_replica_alter_log_dirs_threads or len(log_manager.directories)
    return DirectoryMoves(hosted, tools, copies_max=copies_max)


def _make_selector(config: ServerConfig, metadata: MetadataCache) -> RackAwareReplicaSelector | None:
    if config.replica_selector_class != RACK_AWARE_SELECTOR:
        return None  # the leader serves all consumers, as by Kafka's LeaderSelector
    from broker.replication.fetch.replica_selector import RackAwareReplicaSelector

    return RackAwareReplicaSelector(metadata)
