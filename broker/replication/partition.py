"""Partition: one replica of one partition on this broker, above its log (kafka.cluster.Partition).

It owns the role and the leader epoch, against which PartitionChecks checks requests. `in_sync` owns a leader's state of the other replicas;
the log owns the bytes and the offsets.

Invariant: the high watermark never goes back while this broker leads. No record is acknowledged while a replica that may be in the ISR
lacks it. Times are monotonic milliseconds, given by the caller, except `now_ms` of an append, which is the wall clock.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.metadata.image import NO_LEADER
from broker.replication.fetch.fetch_data import (
    NO_EPOCH,
    FetchIsolation,
    FetchParams,
    FetchTarget,
    PartitionRead,
    PartitionWatcher,
)
from broker.replication.fetch.log_reads import aborted_transactions, find_diverging_epoch
from broker.replication.fetcher.fetcher_control import FetcherControl, InitialFetch
from broker.replication.isr.follower import Follower
from broker.replication.isr.in_sync_replicas import InSyncReplicas, ReplicaFacts
from broker.replication.isr.isr_state import ALL_IN_SYNC, IsrProposal, OnIsrAnswer, PendingIsr
from broker.replication.partition_checks import PartitionChecks
from broker.replication.partition_role import DELETED, FOLLOWER, LEADER, OFFLINE, PartitionRole
from config.topic import LONG_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.uuids import ZERO_UUID
from storage.tail_cache import TailCache
from storage.validation import AppendOrigin, PreparedBatch

if TYPE_CHECKING:
    from broker.metadata.image import PartitionImage
    from broker.observability.metrics import BrokerTopicMetrics
    from config.topic import LogConfig
    from protocol.messages.alter_partition import AlterPartitionResponsePartitionData
    from storage.log import Log
    from storage.log_results import AppendResult
    from storage.verification import TransactionAppend

logger = logging.getLogger("barnabas.replication")

DELETE_ALL_COMMITTED = -1  # instead of an offset: delete up to the high watermark
FLUSH_EVERY_MESSAGE = 1  # flush.messages=1: records are fsynced before they are acknowledged


class PartitionEnvironment(ReplicaFacts, Protocol):
    """What a Partition needs of the broker and the cluster."""

    def alter_isr(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        """Send the proposal to the controller."""

    @property
    def fetchers(self) -> FetcherControl: ...

    def is_broker_epoch_stale(self, node_id: int, broker_epoch: int) -> bool:
        """Whether that broker has registered again since it got the epoch with which it fetched."""

    def on_progress(self, partition: Partition) -> None:
        """The high watermark moved outside an append or a fetch: wake the requests that wait for it."""


class Partition(PartitionChecks):
    """See the module's docstring."""

    __slots__ = (
        "_commits_at_append",
        "_environment",
        "followers",
        "has_flush_limit",
        "metrics",
        "partition",
        "sessions",
        "topic",
        "topic_id",
        "waits_for_flush",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        log: Log,
        *,
        node_id: int,
        environment: PartitionEnvironment,
        metrics: BrokerTopicMetrics,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        super().__init__(node_id, log, InSyncReplicas(repr(self), node_id, log, environment))
        self.followers = self.in_sync.followers  # the same dict: saves a look-up for every produce
        self.metrics = metrics
        self.sessions: dict[PartitionWatcher, None] = {}  # notified when it changes; sessions add and remove themselves
        self._environment = environment
        self.has_flush_limit = self.waits_for_flush = False
        self._commits_at_append = False  # one replica, no waiting for fsync: the high watermark is the log end
        self.config_changed()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # -- becoming leader or follower ------------------------------------------------------------------------------

    def make_leader(self, image: PartitionImage, *, now_ms: int) -> bool:
        """Become leader according to `image`. Returns whether the high watermark advanced. An image older than the known state is
        ignored. An image whose leader epoch is older than the log's does not make it leader; Kafka would remove the later epochs from
        the log's epoch cache and lead."""
        if image.partition_epoch < self.partition_epoch:
            return False
        latest_epoch = self.log.leader_epochs.latest_epoch
        if latest_epoch is not None and image.leader_epoch < latest_epoch:
            logger.error("%r is not led in epoch %d: its log knows epoch %d, the metadata is older", self, image.leader_epoch, latest_epoch)
            self._take_image(image, FOLLOWER)
            self.in_sync.follow(image)
            return False
        is_new_leader = self.role is not LEADER
        if image.leader_epoch > self.leader_epoch:
            # Record the epoch before any record is appended: a follower that asks for its start must get it even if no record is produced.
            self.log.assign_leader_epoch(image.leader_epoch)
        self._take_image(image, LEADER)
        self.in_sync.lead(image, is_new_leader=is_new_leader, now_ms=now_ms)
        self.config_changed()
        return self.maybe_advance_high_watermark(now_ms)

    def make_follower(self, image: PartitionImage) -> None:
        """Follow `image.leader`. The caller then wakes the requests parked here, which fail with NOT_LEADER_OR_FOLLOWER."""
        if image.partition_epoch < self.partition_epoch:
            return
        is_new_epoch = image.leader_epoch > self.leader_epoch
        fetchers = self._environment.fetchers
        if is_new_epoch:
            fetchers.remove(self)
        self._take_image(image, FOLLOWER)
        self.in_sync.follow(image)
        self.config_changed()
        if is_new_epoch and image.leader != NO_LEADER:
            fetchers.add(self, self._initial_fetch())

    def _initial_fetch(self) -> InitialFetch:
        log = self.log
        latest_epoch = log.leader_epochs.latest_epoch
        if latest_epoch is None:
            return InitialFetch(self.topic_id, self.leader_id, self.leader_epoch, log.high_watermark, NO_EPOCH)
        return InitialFetch(self.topic_id, self.leader_id, self.leader_epoch, log.log_end_offset, latest_epoch)

    def _take_image(self, image: PartitionImage, role: PartitionRole) -> None:
        self._take_role(role)
        self.leader_id = image.leader
        self.leader_epoch = image.leader_epoch
        self.replicas = tuple(image.replicas)

    def _take_role(self, role: PartitionRole) -> None:
        if self.role is FOLLOWER and role is not FOLLOWER:
            self._environment.fetchers.remove(self)
        self.role = role

    def replace_log(self, log: Log) -> None:
        """Replace the log by `log`, a copy in another log directory that has all its records. The caller then asks for a flush and wakes
        the waiting requests, which may wait for a flush of the old log."""
        assert log.log_end_offset == self.log.log_end_offset and log.high_watermark >= self.log.high_watermark
        self.log = log
        self.in_sync.replace_log(log)

    def mark_offline(self) -> None:
        """Take the partition offline because its log directory failed. The caller wakes the requests that wait for it."""
        self._take_role(OFFLINE)

    def move_away(self, image: PartitionImage) -> None:
        """Apply an image by which only other brokers have replicas. The caller then calls `mark_deleted`."""
        self.replicas = tuple(image.replicas)

    def mark_deleted(self) -> None:
        """Mark it as no longer hosted. The caller wakes the requests that wait for it."""
        self._take_role(DELETED)

    def config_changed(self, config: LogConfig | None = None) -> None:
        """Apply the topic's new settings (`config`), or a new number of replicas, which bounds min.insync.replicas."""
        if config is not None:
            self.log.update_config(config)
        config = self.log.config
        self.in_sync.min_isr = min(config.min_insync_replicas, max(1, len(self.replicas)))
        self.has_flush_limit = config.flush_messages < LONG_MAX  # without a limit the kernel decides
        self.waits_for_flush = config.flush_messages == FLUSH_EVERY_MESSAGE
        self._commits_at_append = not self.followers and not self.waits_for_flush
        self.log.tail = TailCache() if self.followers else None

    # -- appending and reading -------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | PreparedBatch,
        *,
        acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        is_zstd_allowed: bool = True,
        transaction: TransactionAppend | None = None,
    ) -> AppendResult:
        """Append one batch, whose header is patched in place, and return its offsets. The caller advances the high watermark next.
        `transaction` is what a transactional batch has to show.

        KafkaError: NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR; NOT_ENOUGH_REPLICAS when acks is -1 and the ISR is too small; the errors
        of Log.append_as_leader. After any of them nothing was appended. StorageError: the disk failed."""
        if self.role is not LEADER:
            raise KafkaError(self.absence_error())
        if acks == ALL_IN_SYNC and len(self.in_sync.state.isr) < self.in_sync.min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            verify_zstd_allowed=is_zstd_allowed,
            transaction=transaction,
        )

    def append_as_follower(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        fetch_offset: int,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        now_ms: int,
    ) -> AppendResult:
        """Apply the answer to a fetch of `leader_epoch` from `fetch_offset` on: records, the leader's high watermark and log start.

        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER if the leader has changed since the fetch;
        OFFSET_OUT_OF_RANGE if the log has; the errors of Log.append_as_follower. After any of them nothing has changed. StorageError:
        the disk failed."""
        if leader_epoch != self.leader_epoch:
            self.check_leader_epoch(leader_epoch)
        if self.role is not FOLLOWER:
            raise KafkaError(self.absence_error())
        log = self.log
        if fetch_offset != log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"fetched from {fetch_offset}, the log ends at {log.log_end_offset}")
        appended = log.append_as_follower(records, now_ms=now_ms, leader_epoch=leader_epoch)
        self.metrics.replication_bytes_in += appended.size_bytes
        previous_high_watermark, previous_start_offset = log.high_watermark, log.log_start_offset
        # At most our log's end: records that the leader has committed beyond it are still missing here. Never lower than before: a new
        # leader may know a lower one.
        log.set_high_watermark(leader_high_watermark)
        if leader_log_start_offset > previous_start_offset:
            log.set_log_start_offset(min(leader_log_start_offset, log.high_watermark))
        if log.high_watermark != previous_high_watermark or log.log_start_offset != previous_start_offset:
            self._environment.on_progress(self)
        return appended

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset`, or to the high watermark for -1, and return that offset. Retention removes the files later.

        KafkaError: `absence_error` if this broker does not lead; POLICY_VIOLATION for a topic that is compacted only;
        OFFSET_OUT_OF_RANGE."""
        if self.role is not LEADER:
            raise KafkaError(self.absence_error())
        log = self.log
        if log.config.is_compacted and not log.config.is_deleted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        wanted_offset = log.high_watermark if offset == DELETE_ALL_COMMITTED else offset
        if wanted_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.set_log_start_offset(wanted_offset)
        if self.in_sync.move is not None:
            self.in_sync.move.follow_start()
        return wanted_offset

    def read(self, target: FetchTarget, params: FetchParams, max_bytes: int, minimum_one_batch: bool) -> PartitionRead:
        """Read `target` up to what the isolation allows. Raises KafkaError, which answers the fetcher, if it cannot be read."""
        if self.role is not LEADER or target.current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            self.get_readable_log(target.current_leader_epoch, params.fetch_only_leader)
        if params.replica_id >= 0 and params.replica_id not in self.followers:
            self.get_follower(params.replica_id, target.current_leader_epoch)
        log = self.log
        result = PartitionRead(target, ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        offset = target.fetch_offset
        if target.last_fetched_epoch != NO_EPOCH:
            result.diverging_epoch = find_diverging_epoch(log, target)
            if result.diverging_epoch is not None:
                return result
        end_offset = (log.log_end_offset, log.high_watermark, log.last_stable_offset)[params.isolation]  # end_offset(), without the call
        if offset < log.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= end_offset:
            if params.isolation is FetchIsolation.TXN_COMMITTED:
                result.aborted_transactions = []
            return result
        records = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one_batch=minimum_one_batch)
        result.records = records
        result.size_bytes = len(records)
        if params.isolation is FetchIsolation.TXN_COMMITTED:
            # [] and never null for READ_COMMITTED: a client takes null for "the broker does not filter".
            result.aborted_transactions = aborted_transactions(log, offset, records)
        return result

    def is_idle_for(self, target: FetchTarget, isolation: FetchIsolation) -> bool:
        """Whether a consumer's fetch of `target` can only wait: there are no records for it and nothing else to answer. Cheaper than
        `read`, and without effects. False when in doubt. The cases are DelayedFetch's."""
        if self.role is not LEADER or target.last_fetched_epoch != NO_EPOCH:
            return False
        if target.current_leader_epoch != self.leader_epoch and target.current_leader_epoch != NO_EPOCH:
            return False
        if target.topic_id != self.topic_id and target.topic_id != ZERO_UUID:
            return False
        log = self.log
        end_offset = (log.log_end_offset, log.high_watermark, log.last_stable_offset)[isolation]  # end_offset(), without the call
        return end_offset <= target.fetch_offset <= log.log_end_offset and target.fetch_offset >= log.log_start_offset

    # -- followers and the high watermark --------------------------------------------------------------------------

    def get_follower(self, node_id: int, current_leader_epoch: int) -> Follower:
        """Returns the follower that fetches. A broker that has no replica gets Kafka's error, which makes it wait for newer metadata."""
        follower = self.followers.get(node_id)
        if follower is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH)
        return follower

    def update_follower(
        self,
        node_id: int,
        *,
        current_leader_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> bool:
        """Record a follower's fetch when it arrives, never when it is read again after a wait: by then its offset is old and would look
        like progress.

        `leader_end_offset` is the end of our log before that read. Returns whether the high watermark or a follower's log start moved.
        NOT_LEADER_OR_FOLLOWER if the broker has been restarted since: its old fetches must not bring it into the ISR (KIP-903). Also the
        errors of `get_readable_log` and `get_follower`."""
        self.get_readable_log(current_leader_epoch, only_leader=True)
        if broker_epoch != NO_EPOCH and self._environment.is_broker_epoch_stale(node_id, broker_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower = self.get_follower(node_id, current_leader_epoch)
        return self._update(follower, fetch_offset, log_start_offset, leader_end_offset, broker_epoch, now_ms)

    def record_caught_up(self, target: FetchTarget, node_id: int, broker_epoch: int, now_ms: int) -> bool:
        """As `update_follower`, for a fetch of which `is_caught_up` was true a moment ago."""
        offset = target.fetch_offset
        return self._update(self.followers[node_id], offset, target.log_start_offset, offset, broker_epoch, now_ms)

    def _update(
        self, follower: Follower, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        previous_end_offset, previous_start_offset = follower.log_end_offset, follower.log_start_offset
        follower.update(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=leader_end_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        if follower.node_id not in self.in_sync.state.isr:
            self._send(self.in_sync.maybe_expand(self.topic_id, self.partition, follower))
        is_advanced = follower.log_end_offset != previous_end_offset and self.maybe_advance_high_watermark(now_ms)
        return is_advanced or log_start_offset != previous_start_offset

    def is_caught_up(self, target: FetchTarget, node_id: int, broker_epoch: int) -> bool:
        """Whether `target` is of a follower that may fetch and has everything in this log. Without effects. False when in doubt."""
        return (
            target.fetch_offset == self.log.log_end_offset
            and self.role is LEADER
            and target.current_leader_epoch == self.leader_epoch
            and target.topic_id == self.topic_id
            and target.last_fetched_epoch == self.log.leader_epochs.latest_epoch
            and node_id in self.followers
            and not self._environment.is_broker_epoch_stale(node_id, broker_epoch)
        )

    def maybe_advance_high_watermark(self, now_ms: int) -> bool:
        """Advance the high watermark to the offset up to which every counted replica has the log. Returns whether it moved.

        It does not move while the ISR is smaller than min.insync.replicas: a record that was not acknowledged must not become visible
        and then be lost (KIP-966)."""
        log = self.log
        if self._commits_at_append:
            if log.high_watermark >= log.log_end_offset or self.role is not LEADER:
                return False
            log.set_high_watermark(log.log_end_offset)
            return True
        if self.role is not LEADER or len(self.in_sync.state.isr) < self.in_sync.min_isr:
            return False
        own_end_offset = log.durable_end_offset if self.waits_for_flush else log.log_end_offset
        high_watermark = self.in_sync.find_high_watermark(own_end_offset, now_ms)
        if high_watermark <= log.high_watermark:
            return False
        log.set_high_watermark(high_watermark)
        if high_watermark == log.log_end_offset and log.tail is not None:
            log.tail.forget()
        return True

    # -- the in-sync replicas --------------------------------------------------------------------------------------

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Propose an ISR without the replicas that fell behind. Called by IsrExpiration."""
        if self.role is LEADER:
            self._send(self.in_sync.maybe_shrink(self.topic_id, self.partition, now_ms))

    def _send(self, pending: PendingIsr | None) -> None:
        if pending is not None:
            self._environment.alter_isr(pending.proposal, partial(self._take_isr_answer, pending))

    def _take_isr_answer(self, pending: PendingIsr, answer: AlterPartitionResponsePartitionData, now_ms: int) -> bool:
        """Returns whether to send the change again."""
        if self.role is not LEADER:
            return False  # offline or deleted since
        is_wanted_again = self.in_sync.take_answer(pending, answer)
        if not is_wanted_again and self.maybe_advance_high_watermark(now_ms):
            self._environment.on_progress(self)
        return is_wanted_again
