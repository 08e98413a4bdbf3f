"""Operations on the KIP-848 groups of one shard: ConsumerGroupHeartbeat and timeouts (the consumer group half of Kafka's
GroupMetadataManager).

An operation computes records and a response from the groups as written, and changes only timers. The store changes the groups when the
records are replayed. MemberProgress has the effect of a member's request on its group, ClassicMembers the requests of members that use the
classic protocol.

Called by GroupCoordinatorShard. Source: GroupMetadataManager.consumerGroup*, KIP-848, 1082, 1101, 1251, 1263.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord
from broker.groups.consumer.assignments import Assignments
from broker.groups.consumer.classic_members import ClassicMembers
from broker.groups.consumer.descriptions import not_described
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroupMember, MemberState
from broker.groups.consumer.member_removals import MemberRemovals
from broker.groups.consumer.member_timers import MemberTimers
from broker.groups.consumer.migration import Migration
from broker.groups.consumer.progress import MemberProgress
from broker.groups.consumer.records import assignment_record
from broker.groups.consumer.regular_expressions import RegularExpressions
from broker.groups.consumer.requests import (
    check_epoch,
    check_size,
    known_static_member,
    not_found,
    replace_static_member,
    same_partitions,
    unknown_member,
    with_request,
)
from broker.groups.consumer.result import GroupResult, RecordWriter
from broker.groups.consumer.settings import GroupSettings
from broker.groups.consumer.subscriptions import MemberUpdate
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from protocol.uuids import random_uuid_text

if TYPE_CHECKING:
    import random

    from broker.coordination.records import CoordinatorResult
    from broker.coordination.timers import CoordinatorTimers
    from broker.groups.classic.group_metadata_manager import GroupMetadataManager
    from broker.groups.client_info import ClientInfo
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.group_config import GroupConfig
    from broker.loop.clock import Clock
    from broker.observability.limited_log import LimitedLog


class ConsumerGroupManager:
    """See the module's docstring. `classic_groups` are the classic groups of the same shard. `group_overrides` returns the dynamic configs
    of a group. `writer` writes the results of background jobs."""

    def __init__(
        self,
        store: ConsumerGroupStore,
        classic_groups: GroupMetadataManager,
        topics: GroupTopics,
        timers: CoordinatorTimers,
        clock: Clock,
        random_source: random.Random,
        config: GroupConfig,
        group_overrides: Callable[[str], Mapping[str, str]],
        writer: RecordWriter,
        limited_log: LimitedLog,
    ) -> None:
        self._store = store
        self._classic_groups = classic_groups
        self._random = random_source
        self._config = config
        self._settings = settings = GroupSettings(config, group_overrides)
        self._timers = member_timers = MemberTimers(timers, settings, self._fence_by_timer)
        self._expressions = expressions = RegularExpressions(store, topics, clock, config, writer, limited_log)
        assignments = Assignments(topics, clock, config, settings, limited_log)
        self._progress = MemberProgress(topics, clock, member_timers, expressions, assignments)
        self._migration = Migration(classic_groups, topics, member_timers, clock, config, limited_log)
        self._member_removals = MemberRemovals(store, topics, member_timers, self._migration, limited_log)
        self.classic_members = ClassicMembers(self._progress, self._migration, self._member_removals, topics, member_timers, config)

    # Heartbeats.

    def heartbeat(self, client: ClientInfo, request: ConsumerGroupHeartbeatRequest) -> GroupResult:
        """The next step of a member whose request was checked. A KafkaError is the response to the whole request."""
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        group, made = self._get_or_make_group(request)
        records = made.records
        check_size(group, request.member_id, self._config.consumer_max_size)
        if not request.member_id:
            request.member_id = random_uuid_text(self._random.getrandbits)
        member = self._find_member(group, request, records)
        update = MemberUpdate(group, member, with_request(member, client, request), records, client)
        reconciled = self._progress.advance(update, request.topic_partitions)
        self._timers.keep_session(group.group_id, reconciled.member_id)
        return made._replace(response=self._response(request, member, reconciled))

    def _get_or_make_group(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, GroupResult]:
        """The group, and the result that converts a classic group to it. The first records of a new group make it."""
        group = self._store.groups.get(request.group_id)
        if group is not None:
            return group, GroupResult([])
        classic = self._classic_groups.groups.get(request.group_id)
        if request.member_epoch != JOIN_EPOCH:
            raise not_found(request.group_id, is_classic=classic is not None)
        return (ConsumerGroup(request.group_id), GroupResult([])) if classic is None else self._migration.upgrade(classic)

    # Identity.

    def _find_member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        if request.instance_id is not None:
            return self._find_static_member(group, request.instance_id, request, records)
        member = group.members.get(request.member_id)
        if member is None:
            if request.member_epoch != JOIN_EPOCH:
                raise unknown_member(group, request.member_id)
            return ConsumerGroupMember(request.member_id)
        check_epoch(member, request)
        return member

    def _find_static_member(
        self, group: ConsumerGroup, instance_id: str, request: ConsumerGroupHeartbeatRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        existing = group.find_static_member(instance_id)
        if request.member_epoch != JOIN_EPOCH:
            existing = known_static_member(existing, instance_id, request.member_id)
            check_epoch(existing, request)
            return existing
        if existing is None:
            return group.members.get(request.member_id) or ConsumerGroupMember(request.member_id)
        if not existing.uses_classic_protocol and existing.member_epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the instance id "
                f"is owned by {existing.member_id} member.",
            )
        return replace_static_member(group, existing, request.member_id, records)

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, before: ConsumerGroupMember, member: ConsumerGroupMember
    ) -> ConsumerGroupHeartbeatResponse:
        """The response. It has the assignment only if that changed or the member sent all its fields, as a member in doubt does."""
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms(request.group_id),
        )
        if request.member_epoch == JOIN_EPOCH or is_full or not same_partitions(before.assigned, member.assigned):
            response.assignment = HeartbeatAssignment(
                topic_partitions=[
                    HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in member.assigned.items()
                ]
            )
        return response

    # Leaving.

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> GroupResult:
        group = self._store.groups.get(request.group_id)
        if group is None:
            raise not_described(request.group_id, is_classic=request.group_id in self._classic_groups.groups)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise unknown_member(group, request.member_id)
        else:
            member = known_static_member(group.find_static_member(request.instance_id), request.instance_id, request.member_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                # It keeps its assignment until it returns or its session ends. After its return it may commit for these partitions in the
                # epoch in which they were assigned.
                assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
                away = member._replace(member_epoch=STATIC_LEAVE_EPOCH, assigned=assigned, pending_revocation={})
                return GroupResult([assignment_record(group.group_id, away)], response)
        return self._member_removals.fence(group, [member])._replace(response=response)

    def _fence_by_timer(self, group_id: str, member_id: str, reason: str, epoch: int | None = None) -> CoordinatorResult | None:
        return self._member_removals.fence_by_timer(group_id, member_id, reason, epoch)

    # Loading and unloading.

    def on_loaded(self) -> None:
        """The shard is active: every member gets a whole session timeout to find this coordinator."""
        for group in self._store.groups.values():
            for member in group.members.values():
                self._timers.keep_session(group.group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._timers.await_revocation(group.group_id, member)

    def on_unloaded(self) -> None:
        """Another broker is the coordinator now."""
        self._expressions.on_unloaded()
