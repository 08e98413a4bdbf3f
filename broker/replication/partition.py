"""Partition: one replica of one partition on this broker, above its log (kafka.cluster.Partition).

Owns who leads, the leader and partition epochs, the in-sync replicas with a change of them in flight, what is known of each
follower, and the rule by which the high watermark advances. Its log owns the bytes and the offsets.

Invariants: the high watermark never goes back while this broker leads; `maximal_isr` holds every replica that may be in the ISR
once a change in flight is settled, so no record is acknowledged that such a replica lacks; the controller alone changes `isr`.
Times are monotonic milliseconds, given by the caller, except `now_ms` of an append, which is the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.replication.fetch_data import (
    NO_EPOCH,
    DivergingEpoch,
    FetchIsolation,
    FetchParams,
    FetchTarget,
    PartitionRead,
    PartitionWatcher,
)
from broker.replication.follower import Follower
from protocol.errors import ErrorCode, KafkaError
from protocol.uuids import ZERO_UUID
from storage.validation import AppendOrigin, PreparedBatch

if TYPE_CHECKING:
    from broker.metadata.image import PartitionImage
    from broker.metrics import BrokerTopicMetrics
    from config.topic import LogConfig
    from storage.leader_epochs import EpochEndOffset
    from storage.log import Log
    from storage.log_results import AppendResult

ALL_IN_SYNC = -1  # acks=all
LONG_MAX = 2**63 - 1  # flush.messages: never, which is left to the kernel
FLUSH_EVERY_MESSAGE = 1  # flush.messages=1: what is acknowledged was fsynced

# AlterPartition errors after which the controller certainly did not apply the change: the committed ISR stands.
NOT_APPLIED_ERRORS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Errors after which only newer metadata tells what holds: the proposal stays in flight until it comes.
AWAIT_METADATA_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """A change of the ISR that was sent to the controller. Its identity ties the answer to it."""

    partition: Partition
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    is_expand: bool


class PartitionEnvironment(Protocol):
    """What a Partition needs of the cluster around it."""

    replica_lag_time_max_ms: int

    def alter_isr(self, proposal: IsrProposal) -> None:
        """Send the proposal to the controller; answer later with `proposal.partition.commit_isr` or `refuse_isr`."""

    def is_broker_epoch_stale(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a later incarnation of that broker is registered than the one that fetched."""

    def is_isr_eligible(self, node_id: int, broker_epoch: int) -> bool:
        """Whether the broker is registered, unfenced, not shutting down, and still the incarnation that fetched."""

    def on_progress(self, partition: Partition) -> None:
        """The high watermark moved outside an append or a fetch: wake who waits."""


class Partition:
    """See the module's docstring."""

    __slots__ = (
        "_environment",
        "_is_plain",
        "_min_isr",
        "_node_id",
        "followers",
        "has_flush_limit",
        "is_deleted",
        "is_leader",
        "is_offline",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "maximal_isr",
        "metrics",
        "partition",
        "partition_epoch",
        "proposal",
        "replicas",
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
        self.leader_id = NO_EPOCH
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = 0
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.maximal_isr: tuple[int, ...] = ()
        self.followers: dict[int, Follower] = {}
        self.proposal: IsrProposal | None = None
        self.is_leader = False
        self.is_offline = False  # its log directory failed
        self.is_deleted = False
        self.metrics = metrics
        self.sessions: dict[PartitionWatcher, None] = {}  # to be told when it changes; they enter and leave by themselves
        self._node_id = node_id
        self._environment = environment
        self.has_flush_limit = False
        self.waits_for_flush = False
        self._min_isr = 1
        self._is_plain = False  # one replica, no waiting for fsync: the high watermark is the log end
        self.config_changed()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # -- becoming leader or follower ------------------------------------------------------------------------------

    def make_leader(self, image: PartitionImage, *, now_ms: int) -> bool:
        """Lead by `image`. Returns whether the high watermark advanced. Ignores an image older than what is known."""
        if image.partition_epoch < self.partition_epoch:
            return False
        is_new_leader = not self.is_leader
        is_new_epoch = image.leader_epoch > self.leader_epoch
        self._take_image(image)
        self.is_leader = True
        others = (node_id for node_id in image.replicas if node_id != self._node_id)
        self.followers = {node_id: self.followers.get(node_id) or Follower(node_id) for node_id in others}
        if is_new_epoch:
            log = self.log
            self.leader_epoch = image.leader_epoch
            self.leader_epoch_start_offset = log.log_end_offset
            # Before any record: a follower that asks where the epoch began must find it even if nobody produces.
            log.assign_leader_epoch(image.leader_epoch)
            for follower in self.followers.values():
                follower.reset(
                    is_new_leader=is_new_leader,
                    is_in_isr=follower.node_id in self.isr,
                    leader_end_offset=log.log_end_offset,
                    now_ms=now_ms,
                )
        self.config_changed()
        return self.maybe_advance_high_watermark(now_ms)

    def make_follower(self, image: PartitionImage) -> None:
        """Follow `image.leader`. Requests parked here have to be woken afterwards: they fail with NOT_LEADER_OR_FOLLOWER."""
        if image.partition_epoch < self.partition_epoch:
            return
        self._take_image(image)
        self.is_leader = False
        self.leader_epoch = image.leader_epoch
        self.followers = {}
        self.config_changed()

    def config_changed(self, config: LogConfig | None = None) -> None:
        """Take over the topic's new settings, or the number of replicas, which bounds min.insync.replicas."""
        if config is not None:
            self.log.update_config(config)
        config = self.log.config
        self._min_isr = min(config.min_insync_replicas, max(1, len(self.replicas)))
        self.has_flush_limit = config.flush_messages < LONG_MAX
        self.waits_for_flush = config.flush_messages == FLUSH_EVERY_MESSAGE
        self._is_plain = not self.followers and not self.waits_for_flush

    def _take_image(self, image: PartitionImage) -> None:
        self.partition_epoch = image.partition_epoch
        self.leader_id = image.leader
        self.replicas = tuple(image.replicas)
        self.isr = self.maximal_isr = tuple(image.isr)
        self.proposal = None  # the controller's word overtakes what was in flight; a late answer is ignored

    # -- checks ----------------------------------------------------------------------------------------------------

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self._min_isr

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
        if self.is_offline or self.is_deleted or (only_leader and not self.is_leader):
            raise KafkaError(self._absence_error())
        return self.log

    def _absence_error(self) -> ErrorCode:
        """Why the leader's log is not to be had here."""
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self.is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def end_offset(self, isolation: FetchIsolation) -> int:
        """Where a reader of that isolation has to stop (exclusive)."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    def find_ack_error(self, required_offset: int) -> ErrorCode | None:
        """How a produce with acks=all that ends at `required_offset` (exclusive) is to be answered, None while it has to wait.

        The ISR is counted with changes in flight, as the high watermark is (Kafka's checkEnoughReplicasReachOffset)."""
        if not self.is_leader or self.is_offline:
            return self._absence_error()
        if self.log.high_watermark < required_offset:
            return None
        if len(self.maximal_isr) < self._min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def find_flush_error(self, required_offset: int) -> ErrorCode | None:
        """The same for acks=1 on a topic with flush.messages=1: it waits for the leader's own disk alone."""
        if not self.is_leader or self.is_offline:
            return self._absence_error()
        if self.waits_for_flush and self.log.durable_end_offset < required_offset:
            return None
        return ErrorCode.NONE

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

        KafkaError: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS when acks is -1 and the ISR is too small; what the log refuses.
        Then nothing was appended. StorageError: the disk failed."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ALL_IN_SYNC and len(self.isr) < self._min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, verify_zstd_allowed=is_zstd_allowed
        )

    def read(self, target: FetchTarget, params: FetchParams, max_bytes: int, minimum_one_batch: bool) -> PartitionRead:
        """Read `target` up to what the isolation allows. Raises KafkaError for what the fetcher has to be told instead."""
        if (params.fetch_only_leader and not self.is_leader) or target.current_leader_epoch != NO_EPOCH:
            self.get_readable_log(target.current_leader_epoch, params.fetch_only_leader)
        if params.replica_id >= 0:
            self.get_follower(params.replica_id, target.current_leader_epoch)
        log = self.log
        result = PartitionRead(target, ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        offset = target.fetch_offset
        if target.last_fetched_epoch != NO_EPOCH:
            result.diverging_epoch = self.find_diverging_epoch(target)
            if result.diverging_epoch is not None:
                return result
        end_offset = self.end_offset(params.isolation)
        if offset < log.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= end_offset:
            if params.isolation is FetchIsolation.TXN_COMMITTED:
                result.aborted_transactions = []
            return result
        read = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one_batch=minimum_one_batch)
        result.records = read.records
        if params.isolation is FetchIsolation.TXN_COMMITTED:
            # [] and never null for READ_COMMITTED: a client takes null for "the broker does not filter".
            result.aborted_transactions = log.aborted_transactions(offset, self._segment_end_offset(offset, end_offset))
        return result

    def is_idle_for(self, target: FetchTarget, isolation: FetchIsolation) -> bool:
        """Whether a consumer that asks for `target` can only wait here: no records for it, nothing else to tell. Cheaper than `read`
        and free of effects; False when in doubt. The cases are DelayedFetch's."""
        if not self.is_leader or self.is_offline or target.last_fetched_epoch != NO_EPOCH:
            return False
        if target.current_leader_epoch != self.leader_epoch and target.current_leader_epoch != NO_EPOCH:
            return False
        if target.topic_id != self.topic_id and target.topic_id != ZERO_UUID:
            return False
        log = self.log
        return self.end_offset(isolation) <= target.fetch_offset <= log.log_end_offset and target.fetch_offset >= log.log_start_offset

    def count_available_bytes(self, offset: int, end_offset: int, max_bytes: int, *, at_least: int) -> int:
        """Bytes of whole batches in [offset, end_offset), at most `max_bytes`; no less than `at_least` when they go on in a later
        segment: a read ends with its segment, so waiting for more of them would never end (DelayedFetch's Case F)."""
        if self._segment_end_offset(offset, end_offset) < end_offset:
            return max(at_least, 1)
        records = self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one_batch=True).records
        size_bytes = len(records)
        if not isinstance(records, bytes):
            records.release()
        return min(size_bytes, max_bytes)

    def _segment_end_offset(self, offset: int, end_offset: int) -> int:
        """Where a read from `offset` ends at the latest: no read goes beyond its segment."""
        segments = self.log.segments
        return min(end_offset, segments.end_offset_of(segments.floor_index(offset), self.log.log_end_offset))

    def find_diverging_epoch(self, target: FetchTarget) -> DivergingEpoch | None:
        """Where the fetcher has to cut its log, None when its log is a prefix of ours (KIP-595, KIP-320).

        Raises OFFSET_OUT_OF_RANGE when that cannot be told."""
        end = self.log.end_offset_for_epoch(target.last_fetched_epoch)
        if not end.is_defined or end.epoch == NO_EPOCH or target.fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch < target.last_fetched_epoch or end.end_offset < target.fetch_offset:
            return DivergingEpoch(end.epoch, end.end_offset)
        return None

    def end_offset_for_epoch(self, current_leader_epoch: int, leader_epoch: int) -> EpochEndOffset:
        """Where `leader_epoch` ends in the leader's log (OffsetForLeaderEpoch)."""
        return self.get_readable_log(current_leader_epoch, True).end_offset_for_epoch(leader_epoch)

    # -- followers and the high watermark --------------------------------------------------------------------------

    def get_follower(self, node_id: int, current_leader_epoch: int) -> Follower:
        """The replica that fetches. A stranger is told to wait for newer metadata, which is all we can say (Kafka's answer)."""
        follower = self.followers.get(node_id)
        if follower is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH)
        return follower

    def update_follower(
        self, node_id: int, *, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """Note a follower's fetch as it arrives, never a re-read from the purgatory: an old offset would look like progress later.

        `leader_end_offset` is the end of our log before that read. Returns whether the high watermark advanced.
        NOT_LEADER_OR_FOLLOWER for a broker that has been restarted since: its old fetches must not bring it into the ISR (KIP-903)."""
        if broker_epoch != NO_EPOCH and self._environment.is_broker_epoch_stale(node_id, broker_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower = self.followers[node_id]
        previous_end_offset = follower.log_end_offset
        follower.update(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=leader_end_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        self._maybe_expand_isr(follower)
        return follower.log_end_offset != previous_end_offset and self.maybe_advance_high_watermark(now_ms)

    def maybe_advance_high_watermark(self, now_ms: int) -> bool:
        """Move the high watermark to what every replica that counts has; returns whether it moved.

        Never below the minimum ISR: a record acknowledged nowhere must not become visible there and be lost (KIP-966).
        A replica that has caught up but is not in the ISR yet counts too, so that it can get in before the watermark runs away."""
        log = self.log
        if self._is_plain:
            if log.high_watermark >= log.log_end_offset or not self.is_leader:
                return False
            log.set_high_watermark(log.log_end_offset)
            return True
        if not self.is_leader or self.is_under_min_isr:
            return False
        leader_end_offset = log.log_end_offset
        high_watermark = log.durable_end_offset if self.waits_for_flush else leader_end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < high_watermark and (
                follower.node_id in self.maximal_isr or self._is_about_to_join(follower, leader_end_offset, now_ms)
            ):
                high_watermark = follower.log_end_offset
        if high_watermark <= log.high_watermark:
            return False
        log.set_high_watermark(high_watermark)
        return True

    def _is_about_to_join(self, follower: Follower, leader_end_offset: int, now_ms: int) -> bool:
        environment = self._environment
        return follower.is_caught_up(leader_end_offset, now_ms, environment.replica_lag_time_max_ms) and environment.is_isr_eligible(
            follower.node_id, follower.broker_epoch
        )

    # -- the in-sync replicas --------------------------------------------------------------------------------------

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Propose to drop the replicas that fell behind. Called every half of replica.lag.time.max.ms."""
        if not self.is_leader or self.is_offline or self.proposal is not None:
            return
        lagging = self.lagging_replicas(now_ms)
        if lagging:
            # Those on their way out still count (maximal_isr is unchanged) until the controller has dropped them.
            self._propose(tuple(node_id for node_id in self.isr if node_id not in lagging), is_expand=False)

    def lagging_replicas(self, now_ms: int) -> list[int]:
        """Members of the ISR that are neither level with the leader nor were within the allowed lag."""
        lag_max_ms = self._environment.replica_lag_time_max_ms
        end_offset = self.log.log_end_offset
        return [
            node_id
            for node_id in self.isr
            if node_id != self._node_id
            and (node_id not in self.followers or not self.followers[node_id].is_caught_up(end_offset, now_ms, lag_max_ms))
        ]

    def _maybe_expand_isr(self, follower: Follower) -> None:
        if (
            self.proposal is None
            and follower.node_id not in self.isr
            and follower.log_end_offset >= max(self.log.high_watermark, self.leader_epoch_start_offset)
            and self._environment.is_isr_eligible(follower.node_id, follower.broker_epoch)
        ):
            # It counts at once: were the controller to accept it while we still ignore it, we could acknowledge what it lacks.
            self.maximal_isr = (*self.isr, follower.node_id)
            self._propose(self.maximal_isr, is_expand=True)

    def _propose(self, isr: tuple[int, ...], *, is_expand: bool) -> None:
        self.proposal = IsrProposal(self, isr, self.leader_epoch, self.partition_epoch, is_expand)
        self._environment.alter_isr(self.proposal)

    def commit_isr(self, proposal: IsrProposal, isr: Iterable[int], partition_epoch: int, now_ms: int) -> None:
        """The controller accepted `proposal`; a late answer to one that newer metadata overtook is ignored."""
        if proposal is not self.proposal or partition_epoch < self.partition_epoch:
            return
        self.isr = self.maximal_isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.proposal = None
        if self.maybe_advance_high_watermark(now_ms):
            self._environment.on_progress(self)

    def refuse_isr(self, proposal: IsrProposal, error_code: ErrorCode) -> None:
        """The controller refused `proposal`, or its answer is not known (then it is sent again)."""
        if proposal is not self.proposal:
            return
        if error_code in NOT_APPLIED_ERRORS:
            self.proposal = None
            self.maximal_isr = self.isr
        elif error_code not in AWAIT_METADATA_ERRORS:
            self._environment.alter_isr(proposal)
