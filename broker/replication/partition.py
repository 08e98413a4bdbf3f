"""Partition: one replica of one partition on this broker, above its log (kafka.cluster.Partition).

Owns who leads and in which epoch. `in_sync` owns what a leader knows of the other replicas, the log the bytes and the offsets.

Invariant: the high watermark never goes back while this broker leads, and no record is acknowledged that a replica lacks which may be
in the ISR by now.
Times are monotonic milliseconds, given by the caller, except `now_ms` of an append, which is the wall clock.
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
from broker.replication.fetch.log_reads import find_diverging_epoch, segment_end_offset
from broker.replication.fetcher.fetcher_control import FetcherControl, InitialFetch
from broker.replication.isr.follower import Follower
from broker.replication.isr.in_sync_replicas import InSyncReplicas, ReplicaFacts
from broker.replication.isr.isr_state import ALL_IN_SYNC, IsrProposal, OnIsrAnswer, PendingIsr
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
    from storage.leader_epochs import EpochEndOffset
    from storage.log import Log
    from storage.log_results import AppendResult

logger = logging.getLogger("barnabas.replication")

DELETE_ALL_COMMITTED = -1  # in the place of the offset before which records are deleted
FLUSH_EVERY_MESSAGE = 1  # flush.messages=1: what is acknowledged was fsynced


class PartitionEnvironment(ReplicaFacts, Protocol):
    """What a Partition needs of the cluster around it."""

    def alter_isr(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        """Send the proposal to the controller."""

    @property
    def fetchers(self) -> FetcherControl: ...

    def is_broker_epoch_stale(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a later incarnation of that broker is registered than the one that fetched."""

    def on_progress(self, partition: Partition) -> None:
        """The high watermark moved outside an append or a fetch: wake the requests that wait for it."""


class Partition:
    """See the module's docstring."""

    __slots__ = (
        "_commits_at_append",
        "_environment",
        "_node_id",
        "followers",
        "has_flush_limit",
        "in_sync",
        "leader_epoch",
        "leader_id",
        "log",
        "metrics",
        "partition",
        "replicas",
        "role",
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
        self.log = log
        self.leader_id, self.leader_epoch = NO_LEADER, NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.role = PartitionRole.NONE
        self.in_sync = InSyncReplicas(repr(self), node_id, log, environment)
        self.followers = self.in_sync.followers  # the same dict, for the path of every produce
        self.metrics = metrics
        self.sessions: dict[PartitionWatcher, None] = {}  # notified when it changes; they enter and leave by themselves
        self._node_id = node_id
        self._environment = environment
        self.has_flush_limit = self.waits_for_flush = False
        self._commits_at_append = False  # one replica, no waiting for fsync: the high watermark is the log end
        self.config_changed()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # -- becoming leader or follower ------------------------------------------------------------------------------

    def make_leader(self, image: PartitionImage, *, now_ms: int) -> bool:
        """Lead by `image`. Returns whether the high watermark advanced. Ignores an image older than what is known, and leads nothing by
        one that is older than its log: Kafka would cut the later epochs out of the log's epoch cache, and lead."""
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
            # Before any record: a follower that asks where the epoch began must find it even if nobody produces.
            self.log.assign_leader_epoch(image.leader_epoch)
        self._take_image(image, LEADER)
        self.in_sync.lead(image, is_new_leader=is_new_leader, now_ms=now_ms)
        self.config_changed()
        return self.maybe_advance_high_watermark(now_ms)

    def make_follower(self, image: PartitionImage) -> None:
        """Follow `image.leader`. Requests parked here have to be woken afterwards: they fail with NOT_LEADER_OR_FOLLOWER."""
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
        """From here on it is over `log`, a copy in another log directory that has all that the present one has. The caller then asks for a
        flush and wakes the requests that wait for it: they may have waited for the present one's."""
        assert log.log_end_offset == self.log.log_end_offset and log.high_watermark >= self.log.high_watermark
        self.log = log
        self.in_sync.replace_log(log)

    def mark_offline(self) -> None:
        """Its log directory failed. The caller wakes the requests that wait for it."""
        self._take_role(OFFLINE)

    def move_away(self, image: PartitionImage) -> None:
        """Other brokers have it from here on. The caller then marks it as deleted here."""
        self.replicas = tuple(image.replicas)

    def mark_deleted(self) -> None:
        """It is not hosted any more. The caller wakes the requests that wait for it."""
        self._take_role(DELETED)

    def config_changed(self, config: LogConfig | None = None) -> None:
        """Take over the topic's new settings, or the number of replicas, which bounds min.insync.replicas."""
        if config is not None:
            self.log.update_config(config)
        config = self.log.config
        self.in_sync.min_isr = min(config.min_insync_replicas, max(1, len(self.replicas)))
        self.has_flush_limit = config.flush_messages < LONG_MAX  # else never: it is left to the kernel
        self.waits_for_flush = config.flush_messages == FLUSH_EVERY_MESSAGE
        self._commits_at_append = not self.followers and not self.waits_for_flush
        self.log.tail = TailCache() if self.followers else None

    # -- checks ----------------------------------------------------------------------------------------------------

    @property
    def partition_epoch(self) -> int:
        return self.in_sync.state.partition_epoch

    @property
    def is_leader(self) -> bool:
        return self.role is LEADER

    @property
    def is_offline(self) -> bool:
        return self.role is OFFLINE

    @property
    def is_deleted(self) -> bool:
        return self.role is DELETED

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.in_sync.min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.isr) == self.in_sync.min_isr

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages records or more are not durable yet."""
        log = self.log
        return log.log_end_offset - log.durable_end_offset >= log.config.flush_messages

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.isr) < len(self.replicas)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the requester's epoch is ours; -1 is not checked (KIP-320)."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def get_readable_log(self, current_leader_epoch: int, only_leader: bool) -> Log:
        """The log, if a request of that epoch may be answered here; the epoch is checked before the leadership, as in Kafka."""
        self.check_leader_epoch(current_leader_epoch)
        role = self.role
        if role is OFFLINE or role is DELETED or (only_leader and role is not LEADER):
            raise KafkaError(self.absence_error())
        return self.log

    def absence_error(self) -> ErrorCode:
        """Why the leader's log is not here."""
        if self.role is OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_topic_gone = self.role is DELETED and self._node_id in self.replicas
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def end_offset(self, isolation: FetchIsolation) -> int:
        """Where a reader of that isolation has to stop (exclusive)."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    # -- appending and reading -------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | PreparedBatch,
        *,
        acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        is_zstd_allowed: bool = True,
    ) -> AppendResult:
        """Append one batch (patched in place) and return where it is. The caller advances the high watermark next.

        KafkaError: NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR; NOT_ENOUGH_REPLICAS when acks is -1 and the ISR is too small; what the
        log refuses. Then nothing was appended. StorageError: the disk failed."""
        if self.role is not LEADER:
            raise KafkaError(self.absence_error())
        if acks == ALL_IN_SYNC and len(self.in_sync.state.isr) < self.in_sync.min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, verify_zstd_allowed=is_zstd_allowed
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
        """Take over what a fetch of `leader_epoch` from `fetch_offset` on has given: records, the leader's high watermark and log start.

        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER for an answer that a change of leadership overtook, and
        OFFSET_OUT_OF_RANGE for one to another fetch than the last; what Log.append_as_follower refuses: nothing has changed then.
        StorageError: the disk failed."""
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
        # Within our own log: what the leader has committed beyond its end is yet to come. A new leader may know less than we do.
        log.set_high_watermark(leader_high_watermark)
        if leader_log_start_offset > previous_start_offset:
            log.set_log_start_offset(min(leader_log_start_offset, log.high_watermark))
        if log.high_watermark != previous_high_watermark or log.log_start_offset != previous_start_offset:
            self._environment.on_progress(self)
        return appended

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset`, -1 for the high watermark; returns the offset that was meant. The files go with retention.

        KafkaError: not the leader here; POLICY_VIOLATION for a topic that is compacted only; OFFSET_OUT_OF_RANGE."""
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
        """Read `target` up to what the isolation allows. Raises KafkaError, the answer to the fetcher, if it cannot."""
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
            result.aborted_transactions = log.aborted_transactions(offset, segment_end_offset(log, offset, end_offset))
        return result

    def is_idle_for(self, target: FetchTarget, isolation: FetchIsolation) -> bool:
        """Whether a consumer that asks for `target` can only wait here: no records for it, nothing else to answer. Cheaper than `read`
        and free of effects; False when in doubt. The cases are DelayedFetch's."""
        if self.role is not LEADER or target.last_fetched_epoch != NO_EPOCH:
            return False
        if target.current_leader_epoch != self.leader_epoch and target.current_leader_epoch != NO_EPOCH:
            return False
        if target.topic_id != self.topic_id and target.topic_id != ZERO_UUID:
            return False
        log = self.log
        end_offset = (log.log_end_offset, log.high_watermark, log.last_stable_offset)[isolation]  # end_offset(), without the call
        return end_offset <= target.fetch_offset <= log.log_end_offset and target.fetch_offset >= log.log_start_offset

    def end_offset_for_epoch(self, current_leader_epoch: int, leader_epoch: int) -> EpochEndOffset:
        """Where `leader_epoch` ends in the leader's log (OffsetForLeaderEpoch)."""
        return self.get_readable_log(current_leader_epoch, True).end_offset_for_epoch(leader_epoch)

    # -- followers and the high watermark --------------------------------------------------------------------------

    def get_follower(self, node_id: int, current_leader_epoch: int) -> Follower:
        """The replica that fetches. The error for a stranger makes it wait for newer metadata (Kafka's answer)."""
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
        """Note a follower's fetch as it arrives, never a re-read from the purgatory: an old offset would look like progress later.

        `leader_end_offset` is the end of our log before that read. Returns whether the high watermark or a follower's log start moved.
        NOT_LEADER_OR_FOLLOWER for a broker that has been restarted since: its old fetches must not bring it into the ISR (KIP-903);
        the errors of `get_readable_log` and `get_follower` for another leader epoch and for a stranger."""
        self.get_readable_log(current_leader_epoch, only_leader=True)
        if broker_epoch != NO_EPOCH and self._environment.is_broker_epoch_stale(node_id, broker_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower = self.get_follower(node_id, current_leader_epoch)
        return self._update(follower, fetch_offset, log_start_offset, leader_end_offset, broker_epoch, now_ms)

    def note_caught_up(self, target: FetchTarget, node_id: int, broker_epoch: int, now_ms: int) -> bool:
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
        """Whether `target` is a follower's that may fetch and has all that this log has. Free of effects; False when in doubt."""
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
        """Move the high watermark to what every replica that counts has; returns whether it moved.

        Never below the minimum ISR: a record acknowledged nowhere must not become visible there and be lost (KIP-966)."""
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

    @property
    def isr(self) -> tuple[int, ...]:
        """As the controller committed it."""
        return self.in_sync.state.isr

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Propose to drop the replicas that fell behind. IsrExpiration calls it."""
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
