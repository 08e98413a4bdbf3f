"""GroupCoordinator: the groups of all `__consumer_offsets` partitions that this broker leads (Kafka's GroupCoordinatorService).

Owns one GroupCoordinatorShard per led partition. Finds a group's shard, loads shards when this broker is elected and drops them
when it is not, and drives the regular expiry of offsets. Handlers call it; what they get is a response, or a Deferred of one when
it must wait for other members or for a commit. A KafkaError is the answer to the whole request (or group).

Subscribe `on_metadata_delta` after the ReplicaManager, which must know that it leads before a log can be read.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

from broker.answer_size import AnswerSize
from broker.clock import Clock, Timer
from broker.context import RequestContext
from broker.coordination.coordinator_log import CoordinatorLog
from broker.coordination.java_hash import positive_java_hash
from broker.coordination.records import CoordinatorResult
from broker.deferred import Deferred
from broker.groups.classic_group import ClassicGroup
from broker.groups.group_config import GroupConfig
from broker.groups.shard import GroupCoordinatorShard
from broker.limited_log import EVENT_LINES_MAX, LimitedLog
from broker.log_fields import Fields
from broker.metadata.image import GROUP_METADATA_TOPIC, MetadataDelta
from broker.metadata.metadata_cache import MetadataCache
from broker.pieces import at_once_or_in_turns
from broker.turns import Work
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest
from protocol.uuids import ZERO_UUID

log = logging.getLogger("barnabas.groups")

EXPIRED_GROUPS_PER_STEP = 50
"""Groups looked at for expiry before the event loop gets its turn."""


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
        self._log = coordinator_log
        self._clock = clock
        self._random = random_source
        self._metadata = metadata
        self._shards: dict[int, GroupCoordinatorShard] = {}
        self._loads: deque[tuple[GroupCoordinatorShard, Iterator[None]]] = deque()
        self._load_timer: Timer | None = None
        self._expiry_timer: Timer | None = None
        self._is_active = False
        self._limited_log = LimitedLog(log, clock, lines_max=EVENT_LINES_MAX)

    # Life.

    def start(self) -> None:
        """Serve from now on, and look for expired offsets every `offsets.retention.check.interval.ms`."""
        self._is_active = True
        self._schedule_expiry()

    def stop(self) -> None:
        """Answer all who wait with NOT_COORDINATOR and serve no more."""
        self._is_active = False
        for timer in (self._expiry_timer, self._load_timer):
            if timer is not None:
                timer.cancel()
        self._loads.clear()
        for partition in list(self._shards):
            self.on_resigned(partition)

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Follow the leadership of the offsets partitions, and forget the offsets of deleted topics."""
        deleted_topics = frozenset(topic.name for topic in delta.deleted_topics)
        if GROUP_METADATA_TOPIC in deleted_topics:
            for partition in list(self._shards):
                self.on_resigned(partition)
        elif deleted_topics:
            for shard in list(self._shards.values()):
                shard.delete_topics(deleted_topics)
        added = (change for each in delta.added_partitions if each.topic.name == GROUP_METADATA_TOPIC for change in each.changes())
        for change in chain(delta.changed_partitions, added):
            if change.topic.name != GROUP_METADATA_TOPIC:
                continue
            if change.image.leader == self._metadata.node_id:
                self.on_elected(change.partition, change.image.leader_epoch)
            else:
                self.on_resigned(change.partition)

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load the partition; its groups answer COORDINATOR_LOAD_IN_PROGRESS until that is done."""
        current = self._shards.get(partition)
        if current is not None and current.leader_epoch >= leader_epoch:
            return
        self.on_resigned(partition)
        shard = GroupCoordinatorShard(
            partition, leader_epoch, self._log, self._clock, self._random, self._config, self._topic_id_of, self._limited_log
        )
        self._shards[partition] = shard
        self._loads.append((shard, shard.load()))
        if self._load_timer is None:
            self._load_timer = self._clock.call_later(0, self._load_step)

    def on_resigned(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.unload()

    def _load_step(self) -> None:
        """One step of one load per turn of the event loop: everything else goes on meanwhile."""
        self._load_timer = None
        shard, steps = self._loads[0]
        try:
            is_done = shard.is_unloaded or next(steps, _DONE) is _DONE
        except KafkaError as e:
            # Leadership moved, or the disk failed: the partition's groups are looked for elsewhere.
            log.warning("partition %d could not be loaded: %s", shard.partition, e)
            is_done = True
            if self._shards.get(shard.partition) is shard:
                self.on_resigned(shard.partition)
        if is_done:
            self._loads.popleft()
        if self._loads:
            self._load_timer = self._clock.call_later(0, self._load_step)
        else:
            self._log_loaded()

    def _log_loaded(self) -> None:
        loaded = [shard for shard in self._shards.values() if shard.group_manager.groups]
        if loaded:
            groups_count = sum(len(shard.group_manager.groups) for shard in loaded)
            self._limited_log.info("groups loaded", "groups loaded %s", Fields(groups=groups_count, partitions=len(loaded)))

    def _topic_id_of(self, name: str) -> bytes:
        topic = self._metadata.find_topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    # Which shard.

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps this group."""
        return positive_java_hash(group_id) % self._log.partition_count

    def _shard(self, group_id: str) -> GroupCoordinatorShard:
        """The group's shard, ready. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS otherwise."""
        if not self._is_active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(self.partition_for(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _member_shard(self, group_id: str) -> GroupCoordinatorShard:
        """The shard of a group that can have members: it needs a name."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shard(group_id)

    # Membership.

    def join(self, context: RequestContext, request: JoinGroupRequest) -> Deferred:
        """A Deferred of JoinGroupResponse."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if not self._config.min_session_timeout_ms <= request.session_timeout_ms <= self._config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        shard = self._shard(request.group_id)
        reply = Deferred()
        shard.run(shard.group_manager.join(context, request, reply))
        return reply

    def sync(self, request: SyncGroupRequest) -> Deferred:
        """A Deferred of SyncGroupResponse."""
        shard = self._member_shard(request.group_id)
        reply = Deferred()
        shard.run(shard.group_manager.sync(request, reply))
        return reply

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            shard = self._member_shard(request.group_id)
        except KafkaError as e:
            if e.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The member is very likely fine; sending it to rejoin for a load of milliseconds would cost a rebalance.
                return HeartbeatResponse()
            raise
        return HeartbeatResponse(error_code=shard.group_manager.heartbeat(request))

    def leave(self, request: LeaveGroupRequest) -> Deferred | LeaveGroupResponse:
        """LeaveGroupResponse with one answer per member, at once unless a group that became empty must be stored first."""
        shard = self._member_shard(request.group_id)
        result, members = shard.group_manager.leave(request)
        response = LeaveGroupResponse(members=members)
        if result is None:
            return response
        reply = Deferred()
        tell_group = result.on_committed

        def on_committed(error: ErrorCode) -> None:
            tell_group(error)
            reply.complete(response if error is ErrorCode.NONE else LeaveGroupResponse(error_code=error))

        result.on_committed = on_committed
        shard.write(result)
        return reply

    # Offsets.

    def commit_offsets(self, context: RequestContext, request: OffsetCommitRequest) -> Deferred | OffsetCommitResponse:
        """OffsetCommitResponse once the offsets are committed. Whether the partitions exist is the handler's to check."""
        shard = self._shard(request.group_id)
        records, response = shard.offset_manager.commit(request, context.api_version)
        if not records:
            return response
        reply = Deferred()
        shard.write(
            CoordinatorResult(
                records,
                lambda error: reply.complete(response if error is ErrorCode.NONE else commit_error_response(request, error)),
            )
        )
        return reply

    def fetch_offsets(self, group: OffsetFetchRequestGroup, size: AnswerSize, *, require_stable: bool) -> Work:
        """OffsetFetchResponseGroup, or a Deferred of it. A stable fetch waits for the commits in flight: it must not miss one (KIP-447).

        KafkaError when the offsets do not fit into what is left of the answer's size."""
        shard = self._shard(group.group_id)
        work = shard.offset_manager.fetch(group, size, require_stable=require_stable)
        if require_stable:
            stable = Deferred()
            shard.when_stable(lambda: stable.complete(None))
            if not stable.is_done:
                reply = Deferred()
                stable.when_done(lambda _: self._fetch_step(shard, work, reply))
                return reply
        return (yield from work)

    def _fetch_step(self, shard: GroupCoordinatorShard, work: Work, reply: Deferred) -> None:
        """A few pieces of a fetch that had to wait. Whoever ended the wait goes on after the first."""
        outcome: Any
        try:
            outcome = KafkaError(ErrorCode.NOT_COORDINATOR) if shard.is_unloaded else at_once_or_in_turns(work)
        except Exception as e:
            outcome = e
        if outcome is work:
            self._clock.call_later(0, self._fetch_step, shard, work, reply)
        else:
            reply.complete(outcome)

    # Inspection.

    def list_groups(self) -> list[ClassicGroup]:
        """All groups here. COORDINATOR_LOAD_IN_PROGRESS while some are not known yet: a partial list would look whole."""
        if not self._is_active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not all(shard.is_loaded for shard in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [group for shard in self._shards.values() for group in shard.group_manager.groups.values()]

    def find_group(self, group_id: str) -> ClassicGroup | None:
        """The group, None if there is none of that id; KafkaError if it is not this broker that knows."""
        return self._shard(group_id).group_manager.groups.get(group_id)

    # Expiry.

    def _schedule_expiry(self) -> None:
        self._expiry_timer = self._clock.call_later(self._config.offsets_retention_check_interval_ms, self._start_expiry)

    def _start_expiry(self) -> None:
        self._expire_step(
            deque(
                (shard, group_ids[start : start + EXPIRED_GROUPS_PER_STEP])
                for shard in self._shards.values()
                if (group_ids := list(shard.group_manager.groups))
                for start in range(0, len(group_ids), EXPIRED_GROUPS_PER_STEP)
            )
        )

    def _expire_step(self, steps: deque[tuple[GroupCoordinatorShard, list[str]]]) -> None:
        if not steps:
            self._schedule_expiry()
            return
        shard, group_ids = steps.popleft()
        shard.expire(group_ids)
        self._expiry_timer = self._clock.call_later(0, self._expire_step, steps)


def commit_error_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition of the request."""
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


_DONE: Any = object()
