"""Members of KIP-848 groups that use the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (GroupMetadataManager's
classicGroup*ToConsumerGroup).

To such a member the group looks like a classic one, whose generation is the member's epoch. A heartbeat tells the member to join again when
the group has a new assignment, when the member must revoke partitions, or when partitions that it waits for are released. Each JoinGroup is
a step towards the member's target (MemberProgress); the SyncGroup response has its assignment. JoinGroup does not wait for other members,
and the group has no leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord
from broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE
from broker.groups.classic.classic_group_member import is_too_large, rebalance_timeout_ms, requires_member_id
from broker.groups.consumer.assignments import present_target
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.consumer.requests import check_size, known_static_member, replace_static_member, unknown_member
from broker.groups.consumer.result import GroupResult
from broker.groups.consumer.subscriptions import MemberUpdate
from broker.groups.group_config import MigrationPolicy
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import HeartbeatTopicPartitions
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.stored.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from protocol.messages.stored.consumer_protocol import ConsumerProtocolSubscription, decode_subscription, encode_assignment, version_of
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from broker.groups.client_info import ClientInfo
    from broker.groups.consumer.member_removals import MemberRemovals
    from broker.groups.consumer.member_timers import MemberTimers
    from broker.groups.consumer.migration import Migration
    from broker.groups.consumer.progress import MemberProgress
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.group_config import GroupConfig


class ClassicMembers:
    """See the module's docstring. A KafkaError is the response to the whole request."""

    def __init__(
        self,
        progress: MemberProgress,
        migration: Migration,
        member_removals: MemberRemovals,
        topics: GroupTopics,
        timers: MemberTimers,
        config: GroupConfig,
    ) -> None:
        self._progress = progress
        self._migration = migration
        self._member_removals = member_removals
        self._topics = topics
        self._timers = timers
        self._config = config

    # JoinGroup.

    def join(self, group: ConsumerGroup, client: ClientInfo, request: JoinGroupRequest, new_member_id: str) -> GroupResult:
        """A JoinGroupResponse. A member without an id gets `new_member_id`."""
        if self._config.migration_policy is MigrationPolicy.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or new_member_id
        check_size(group, member_id, self._config.consumer_max_size)
        if is_too_large(request):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports_classic_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if requires_member_id(request, client.api_version):
            return GroupResult([], JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        records: list[CoordinatorRecord] = []
        member = self._find_joining_member(group, member_id, request, records)
        subscription = _subscription(request)
        update = MemberUpdate(group, member, _with_join(member, client, request, subscription), records, client)
        owned = self._owned(subscription)
        if self._migration.is_downgraded_by(group, request.group_instance_id):
            return self._join_and_downgrade(update, owned)
        joined = self._progress.advance(update, owned)
        return GroupResult(
            records,
            _joined(joined),
            on_replayed=partial(self._keep_session, group.group_id, joined),  # at once, because the response may get lost
            on_committed=partial(self._await_sync, group.group_id, joined),
        )

    def _find_joining_member(
        self, group: ConsumerGroup, member_id: str, request: JoinGroupRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        """The member of that id, or a new one, or the member that a static member without member id replaces."""
        if request.group_instance_id is not None:
            existing = group.find_static_member(request.group_instance_id)
            if request.member_id:
                return known_static_member(existing, request.group_instance_id, member_id)
            if existing is not None:
                return replace_static_member(group, existing, member_id, records)
        return group.members.get(member_id) or ConsumerGroupMember(member_id)

    def _join_and_downgrade(self, update: MemberUpdate, owned: Sequence[HeartbeatTopicPartitions]) -> GroupResult:
        """The last member that used the consumer protocol has returned with the classic one: the group becomes classic."""
        change = self._progress.note(update)
        is_stale = update.group.assignment_epoch < self._progress.maybe_bump_epoch(update, change)
        joined = update.after
        if not is_stale:  # else all members rebalance
            joined = self._progress.reconcile(update, present_target(update), owned, change)
        result = self._migration.downgrade_with(update, joined, is_assignment_stale=is_stale)
        return result._replace(response=_joined(joined))

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[HeartbeatTopicPartitions]:
        """The partitions that the member says it owns. An eager member revokes all partitions before it joins, and names none."""
        return [
            HeartbeatTopicPartitions(topic_id=topic_id, partitions=topic.partitions)
            for topic in subscription.owned_partitions
            if (topic_id := self._topics.find_id(topic.topic)) is not None
        ]

    def _await_sync(self, group_id: str, member: ConsumerGroupMember) -> None:
        self._keep_session(group_id, member)
        self._timers.joined(group_id, member)

    def _keep_session(self, group_id: str, member: ConsumerGroupMember) -> None:
        assert member.classic is not None, "members of the consumer protocol have the group's session timeout"
        self._timers.keep_session(group_id, member.member_id, member.classic.session_timeout_ms)

    # SyncGroup.

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> GroupResult:
        """A SyncGroupResponse."""
        member, classic = _find_classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        chosen = classic.supported_protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, chosen.name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A member that must revoke partitions has joined for the new epoch already, and this response tells it which it keeps.
        if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.await_join(group.group_id, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(self._migration.protocol_assignment(member.assigned), version_of(chosen.metadata)),
        )
        return GroupResult([], response, on_committed=partial(self._synced, group.group_id, member))

    def _synced(self, group_id: str, member: ConsumerGroupMember) -> None:
        self._timers.synced(group_id, member.member_id)
        self._keep_session(group_id, member)

    # Heartbeat and LeaveGroup.

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        """Extend the member's session. REBALANCE_IN_PROGRESS tells the member to join again."""
        member, _ = _find_classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._keep_session(group.group_id, member)
        if (
            _is_behind(group, member)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_partitions(member))
        ):
            self._timers.await_join(group.group_id, member)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> GroupResult:
        """A LeaveGroupResponse with a result for each member, of either protocol."""
        leaving: dict[str, ConsumerGroupMember] = {}
        responses = []
        for identity in request.members:
            error = ErrorCode.NONE
            try:
                member = _find_leaving_member(group, identity)
                leaving[member.member_id] = member
            except KafkaError as e:
                error = e.code
            responses.append(MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error))
        result = self._member_removals.fence(group, list(leaving.values()))
        return result._replace(response=LeaveGroupResponse(members=responses))


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The member's subscription. It is the same in each protocol that the member offers."""
    try:
        return decode_subscription(request.protocols[0].metadata)
    except DecodeError as e:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from e  # as Kafka answers


def _with_join(
    member: ConsumerGroupMember, client: ClientInfo, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerGroupMember:
    return member._replace(
        instance_id=request.group_instance_id if member.instance_id is None else member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=client.client_id,
        client_host="/" + client.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=protocol.name, metadata=bytes(protocol.metadata)) for protocol in request.protocols],
        ),
    )


def _joined(member: ConsumerGroupMember) -> JoinGroupResponse:
    assert member.classic is not None, "only members of the classic protocol join in this way"
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
    )


def _find_classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    if instance_id is not None:
        member = known_static_member(group.find_static_member(instance_id), instance_id, member_id)
    else:
        found = group.members.get(member_id)
        if found is None:
            raise unknown_member(group, member_id)
        member = found
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _is_behind(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Whether the member must join again for the group's assignment.

    A heartbeat of a member of the consumer protocol makes the assignment of a new epoch. In a group without such members a JoinGroup makes
    it, so at a new epoch the members are told to join. Kafka 4.3.1 does not tell them: the partitions of a member that left have no reader
    until another member joins."""
    has_others = group.classic_member_count < len(group.members)
    return member.member_epoch < (group.assignment_epoch if has_others else group.epoch)


def _check_generation(member: ConsumerGroupMember, generation: int) -> None:
    if generation != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _find_leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    """The member to remove. A tool names a static member by its instance id alone."""
    if identity.group_instance_id is None:
        member = group.members.get(identity.member_id)
        if member is None:
            raise unknown_member(group, identity.member_id)
        return member
    existing = group.find_static_member(identity.group_instance_id)
    if existing is not None and not identity.member_id:
        return existing
    return known_static_member(existing, identity.group_instance_id, identity.member_id)
