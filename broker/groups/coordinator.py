"""GroupCoordinator: the groups of all `__consumer_offsets` partitions that this broker leads (Kafka's GroupCoordinatorService).

For each request it asks the runtime for the group's shard, lets the shard's state machine compute a result, and gives the result to the
shard to write. It also expires offsets regularly. Handlers call it and get a response, or a Deferred of a response that waits for other
members or for a commit. A KafkaError is the response to the whole request (or group).

Subscribe `on_metadata_delta` after the ReplicaManager, which must know that it leads before a log can be read.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from broker.coordination.coordinator_log import TransactionalWrite
from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.runtime import CoordinatorRuntime
from broker.coordination.shard import RESPONSE_ERRORS
from broker.groups.classic.rebalance_responses import RebalanceResponses
from broker.groups.record_table import GROUP_RECORDS
from broker.loop.deferred import Deferred
from broker.loop.job import LoopJob
from broker.metadata.cluster_state import RESOURCE_GROUP
from broker.metadata.features import GROUP_VERSION_FEATURE
from broker.metadata.image import GROUP_METADATA_TOPIC, MetadataDelta
from broker.observability.limited_log import EVENT_LINES_MAX, LimitedLog
from broker.observability.log_fields import Fields
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.uuids import ZERO_UUID, random_uuid_text

if TYPE_CHECKING:
    from broker.coordination.coordinator_log import CoordinatorLog
    from broker.coordination.shard import Shard
    from broker.groups.classic.classic_group import ClassicGroup
    from broker.groups.client_info import ClientInfo
    from broker.groups.consumer.result import GroupResult
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.consumption import GroupConsumption
    from broker.groups.deletions import Deletions
    from broker.groups.descriptions import GroupListing
    from broker.groups.group_config import GroupConfig
    from broker.groups.offset_reads import OffsetReads
    from broker.groups.shard import GroupCoordinatorShard
    from broker.loop.clock import Clock, Timer
    from broker.loop.turns import Work
    from broker.metadata.metadata_cache import MetadataCache
    from broker.network.answer_size import AnswerSize
    from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
    from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
    from storage.markers import TransactionMarker
    from storage.verification import VerificationGuard

log = logging.getLogger("barnabas.groups")


class GroupCoordinator:
    """See the module's docstring."""

    def __init__(
        self,
        config: GroupConfig,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        random_source: random.Random,
        metadata: MetadataCache,
    ) -> None:
        self._config = config
        self._clock = clock
        self._random = random_source
        self._metadata = metadata
        self._expiry_timer: Timer | None = None
        self._expiry = LoopJob(clock, self._expire)
        self._coordinator_log = coordinator_log
        self._topics: GroupTopics | None = None
        self._responses = RebalanceResponses(clock)
        self._limited_log = limited_log = LimitedLog(log, clock, lines_max=EVENT_LINES_MAX)
        self.runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            GROUP_METADATA_TOPIC,
            node_id=metadata.node_id,
            coordinator_log=coordinator_log,
            clock=clock,
            table=GROUP_RECORDS,
            make_machine=self._make_machine,
            write_timeout_ms=config.commit_timeout_ms,
            limited_log=limited_log,
            on_all_loaded=self._log_loaded,
        )

    def _make_machine(self, shard: Shard[GroupCoordinatorShard]) -> GroupCoordinatorShard:
        from broker.groups.shard import GroupCoordinatorShard  # here, because a broker without groups does not need it

        return GroupCoordinatorShard(
            shard,
            self._clock,
            self._random,
            self._config,
            self._topic_id_of,
            self._limited_log,
            self._group_topics,
            self._group_overrides,
            self._responses,
        )

    # Life.

    def start(self) -> None:
        """Serve requests, and expire offsets every `offsets.retention.check.interval.ms`."""
        self.runtime.start()
        self._schedule_expiry()

    def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR and serve no more."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry.stop()
        self.runtime.stop()
        self._responses.flush()

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Follow the leadership of the offsets partitions, delete the offsets of deleted topics, and tell KIP-848 groups which of their
        topics changed."""
        self.runtime.on_metadata_delta(delta)
        if self._topics is not None:
            changed = self._topics.on_metadata_delta(delta)
            for shard in self.runtime.shards():
                shard.machine.on_topics_changed(changed)
        deleted_topics = {topic.name: (topic.topic_id, ZERO_UUID) for topic in delta.deleted_topics}  # old brokers stored no topic id
        if deleted_topics:
            for shard in self.runtime.shards():
                shard.when_loaded(partial(shard.machine.delete_topics, deleted_topics))

    def _log_loaded(self) -> None:
        counts = [count for shard in self.runtime.active_shards() if (count := shard.machine.group_count)]
        if counts:
            self._limited_log.info("groups loaded", "groups loaded %s", Fields(groups=sum(counts), partitions=len(counts)))

    def _group_topics(self) -> GroupTopics:
        if self._topics is None:
            from broker.groups.consumer.topics import GroupTopics

            self._topics = GroupTopics(self._metadata)
        return self._topics

    def _group_overrides(self, group_id: str) -> Mapping[str, str]:
        """The configs that the group has set (KIP-848's dynamic group configs)."""
        return self._metadata.state.overrides(RESOURCE_GROUP, group_id)

    def _topic_id_of(self, name: str) -> bytes:
        topic = self._metadata.find_topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    # Which shard.

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps this group."""
        return self.runtime.partition_for(group_id)

    def _member_shard(self, group_id: str) -> Shard[GroupCoordinatorShard]:
        """The shard of a group that can have members. INVALID_GROUP_ID for an empty id."""
        if group_id:
            return self.runtime.get_shard(group_id)
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    # Membership.

    def join(self, client: ClientInfo, request: JoinGroupRequest) -> Deferred:
        """A Deferred of JoinGroupResponse."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if not self._config.min_session_timeout_ms <= request.session_timeout_ms <= self._config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        shard = self.runtime.get_shard(request.group_id)
        consumer_group = shard.machine.find_consumer_group(request.group_id)
        if consumer_group is not None and not consumer_group.is_empty:
            members = shard.machine.consumer_group_manager.classic_members
            try:
                result = members.join(consumer_group, client, request, random_uuid_text(self._random.getrandbits))
            except KafkaError as error:
                refused = Deferred()
                refused.complete(_join_error(error.code))  # without the member id, as Kafka's handleOperationException
                return refused
            return _carried_out(shard, result, _join_error)
        replaced = [] if consumer_group is None else shard.machine.tombstones_of(request.group_id)
        reply = Deferred()
        shard.run(shard.machine.group_manager.join(client, request, reply, replaced))
        return reply

    def sync(self, request: SyncGroupRequest) -> Deferred:
        """A Deferred of SyncGroupResponse."""
        shard = self._member_shard(request.group_id)
        consumer_group = shard.machine.find_consumer_group(request.group_id)
        if consumer_group is not None:
            result = shard.machine.consumer_group_manager.classic_members.sync(consumer_group, request)
            return _carried_out(shard, result, _sync_error)
        reply = Deferred()
        shard.run(shard.machine.group_manager.sync(request, reply))
        return reply

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse | Deferred:
        try:
            shard = self._member_shard(request.group_id)
        except KafkaError as e:
            if e.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The member very likely still belongs to the group. A load takes milliseconds; an error would cost a rebalance.
                return HeartbeatResponse()
            raise
        consumer_group = shard.machine.find_consumer_group(request.group_id)
        if consumer_group is not None:
            response = shard.machine.consumer_group_manager.classic_members.heartbeat(consumer_group, request)
        else:
            response = HeartbeatResponse(error_code=shard.machine.group_manager.heartbeat(request))
        return _written(shard, [], response, _heartbeat_error) if shard.has_writes else response

    def leave(self, request: LeaveGroupRequest) -> Deferred | LeaveGroupResponse:
        """LeaveGroupResponse with one result per member. A Deferred of it, if the coordinator must store first that the group became empty
        or which members a KIP-848 group has left."""
        shard = self._member_shard(request.group_id)
        consumer_group = shard.machine.find_consumer_group(request.group_id)
        if consumer_group is not None:
            left = shard.machine.consumer_group_manager.classic_members.leave(consumer_group, request)
            return _carried_out(shard, left, _leave_error)
        result, members = shard.machine.group_manager.leave(request)
        response = LeaveGroupResponse(members=members)
        if result is None:
            return _written(shard, [], response, _leave_error) if shard.has_writes else response
        return _written(shard, result.records, response, _leave_error, result.on_committed)

    # Members of KIP-848 groups.

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether KIP-848 groups are served: this broker's configuration and the cluster's finalized group.version both allow it."""
        return self._config.has_consumer_protocol and self._metadata.state.features.get(GROUP_VERSION_FEATURE, 0) >= 1

    def consumer_group_heartbeat(
        self, client: ClientInfo, request: ConsumerGroupHeartbeatRequest
    ) -> Deferred | ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeatResponse, once the records of the heartbeat are committed."""
        from broker.groups.consumer.requests import check_request, error_response

        check_request(client, request, self._config.consumer_assignors)
        shard = self._member_shard(request.group_id)
        result = shard.machine.consumer_group_manager.heartbeat(client, request)
        if not result.records and not shard.has_writes:
            response: ConsumerGroupHeartbeatResponse = result.response
            return response
        return _carried_out(shard, result, error_response)

    # Offsets.

    def commit_offsets(self, request: OffsetCommitRequest, api_version: int) -> Deferred | OffsetCommitResponse:
        """OffsetCommitResponse once the offsets are committed. The handler has checked that the partitions exist."""
        shard = self.runtime.get_shard(request.group_id)
        records, response = shard.machine.offset_manager.commit(request, api_version)
        if not records and not shard.has_writes:
            return response
        return _written(shard, records, response, lambda error: commit_error_response(request, error))

    def start_verification(self, request: TxnOffsetCommitRequest, *, supports_epoch_bump: bool) -> VerificationGuard | None:
        """Returns what the commit has to show after the transaction coordinator was asked; None if the transaction has committed offsets in
        the group's partition already, so that nothing has to be asked. KafkaError: INVALID_PRODUCER_EPOCH, or why this broker does not
        coordinate the group."""
        shard = self._member_shard(request.group_id)
        try:
            return self._coordinator_log.start_verification(
                shard.partition, request.producer_id, request.producer_epoch, supports_epoch_bump=supports_epoch_bump
            )
        except KafkaError as error:
            raise KafkaError(RESPONSE_ERRORS.get(error.code, error.code), error.message) from error

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, guard: VerificationGuard | None, *, is_verification_required: bool = True
    ) -> Deferred | TxnOffsetCommitResponse:
        """TxnOffsetCommitResponse once the offsets are part of the transaction, durably. They count when its marker comes. Whether the
        partitions exist is the handler's to check. INVALID_TXN_STATE: `guard` does not stand (any more)."""
        shard = self._member_shard(request.group_id)
        records, response = shard.machine.offset_manager.commit_transactionally(request)
        if not records and not shard.has_writes:
            return response
        producer = TransactionalWrite(request.producer_id, request.producer_epoch, guard, is_verification_required)
        return _written(shard, records, response, lambda error: transactional_commit_error_response(request, error), producer=producer)

    def complete_transaction(self, partition: int, marker: TransactionMarker) -> Deferred:
        """Append the end of a transaction to a partition of `__consumer_offsets`, in the order of the coordinator's writes: a Deferred of
        what becomes of it, an ErrorCode. NONE: the transaction's offsets count now, or never, and that is committed."""
        completed = Deferred()
        try:
            shard = self.runtime.get_shard_of(partition)
        except KafkaError as error:
            completed.complete(_marker_error(error.code))
        else:
            shard.write_marker(marker, lambda error: completed.complete(_marker_error(error)))
        return completed

    def offset_reads(self, size: AnswerSize, *, require_stable: bool) -> OffsetReads:
        """An OffsetReads for one request. `size` counts the bytes of its response."""
        from broker.groups.offset_reads import OffsetReads

        return OffsetReads(self.runtime.get_shard, size, require_stable=require_stable)

    def deletions(self) -> Deletions:
        """A Deletions for one request."""
        from broker.groups.deletions import Deletions

        return Deletions(self.runtime.get_shard, self._limited_log)

    # Inspection, of committed state only.

    def list_groups(self) -> Iterator[GroupListing]:
        """All groups of this broker. KafkaError while shards are loading: a client could not tell a partial list from a whole one."""
        from broker.groups.descriptions import listing

        shards = self.runtime.get_active_shards()
        classic = map(listing, self._groups())
        consumer = (shard.machine.list_consumer_groups() for shard in shards if shard.machine.has_consumer_groups)
        return chain(classic, chain.from_iterable(consumer))

    def count_states(self) -> Counter[str]:
        """How many groups are in each state. KafkaError as above."""
        counts = Counter(group.state.value for group in self._groups())
        for shard in self.runtime.active_shards():
            if shard.machine.has_consumer_groups:
                counts.update(group.state for group in shard.machine.list_consumer_groups())
        return counts

    def consumption(self) -> Iterator[GroupConsumption]:
        """What the groups of this broker have committed, as far as their shards are loaded."""
        from broker.groups.consumption import consumption

        return consumption(self.runtime.active_shards())

    def _groups(self) -> list[ClassicGroup]:
        shards = self.runtime.get_active_shards()
        return list(chain.from_iterable(shard.timeline.committed_values(shard.machine.group_manager.groups) for shard in shards))

    def describe_consumer_group(self, group_id: str) -> Work:
        """DescribedConsumerGroup. KafkaError (such as GROUP_ID_NOT_FOUND) for a group that this broker does not have."""
        from broker.groups.consumer.descriptions import described, not_described

        shard = self._member_shard(group_id)
        group = shard.machine.find_committed_consumer_group(group_id)
        if group is None:
            raise not_described(group_id, is_classic=group_id in shard.timeline.committed(shard.machine.group_manager.groups))
        return (yield from described(group, shard.timeline, self._group_topics(), self._config.consumer_assignors[0]))

    def describe(self, group_id: str) -> Work:
        """GroupDescription, or None if there is no group of that id. KafkaError if this broker is not its coordinator."""
        from broker.groups.descriptions import description

        shard = self.runtime.get_shard(group_id)
        group = shard.timeline.committed(shard.machine.group_manager.groups).get(group_id)
        return None if group is None else (yield from description(group))

    def is_consumer_group(self, group_id: str) -> bool:
        """Whether a committed KIP-848 group has that id. KafkaError as above."""
        return self.runtime.get_shard(group_id).machine.find_committed_consumer_group(group_id) is not None

    # Expiry.

    def _schedule_expiry(self) -> None:
        self._expiry_timer = self._clock.call_later(self._config.offsets_retention_check_interval_ms, self._expiry.resume)

    def _expire(self) -> Generator[None, None, None]:
        for shard in self.runtime.active_shards():
            for group_id in shard.machine.group_ids():
                if shard.is_active:
                    shard.machine.expire(group_id)
                yield
        self._schedule_expiry()


def _written(
    shard: Shard[GroupCoordinatorShard],
    records: list[CoordinatorRecord],
    response: object,
    error_response: Callable[[ErrorCode], object],
    on_committed: Callable[[ErrorCode], None] | None = None,
    producer: TransactionalWrite | None = None,
) -> Deferred:
    """A Deferred of `response`. It completes when the records are committed, or, without records, when all earlier writes are.
    `on_committed` is called before that."""
    reply = Deferred()

    def answer(error: ErrorCode) -> None:
        if on_committed is not None:
            on_committed(error)
        reply.complete(response if error is ErrorCode.NONE else error_response(error))

    shard.write(CoordinatorResult(records, answer), producer)
    return reply


def _carried_out(shard: Shard[GroupCoordinatorShard], result: GroupResult, error_response: Callable[[ErrorCode], object]) -> Deferred:
    """A Deferred of the response of an operation on a KIP-848 group."""
    reply = Deferred()
    shard.write(result.answered_by(reply.complete, error_response))
    return reply


def _join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    from protocol.messages.join_group import JoinGroupResponse

    return JoinGroupResponse(error_code=error, member_id=member_id)


def _sync_error(error: ErrorCode) -> SyncGroupResponse:
    from protocol.messages.sync_group import SyncGroupResponse

    return SyncGroupResponse(error_code=error)


def _heartbeat_error(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


def _marker_error(error: ErrorCode) -> ErrorCode:
    """The errors that a transaction coordinator expects: it asks the partition's next leader."""
    if error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error


def _leave_error(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)


def commit_error_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition of the request."""
    from protocol.messages.offset_commit import OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic

    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_error_response(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition of the request."""
    from protocol.messages.txn_offset_commit import TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
