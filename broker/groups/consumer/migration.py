"""Migration: groups with members change their protocol (KIP-848's online migration).

A classic group of consumers becomes a KIP-848 group when its first member with the consumer protocol joins. The other members keep their
subscriptions and partitions and continue to use the classic protocol (ClassicMembers). The group becomes a classic one again when the last
member with the consumer protocol is gone. `group.consumer.migration.policy` says which directions are allowed.

Source: convertToConsumerGroup and convertToClassicGroup of GroupMetadataManager, ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup. In Kafka unreadable bytes of one member keep another member from leaving; here that member leaves, and the
group does not change its protocol.

A conversion is one batch, so that a log has the group in exactly one protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord
from broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from broker.groups.classic.classic_group_member import ClassicGroupMember
from broker.groups.consumer.group import ASSIGNMENT_EPOCH, GROUP_EPOCH, METADATA_HASH, ConsumerGroup
from broker.groups.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Owned, Partitions
from broker.groups.consumer.records import group_records, group_tombstones
from broker.groups.consumer.result import GroupResult
from broker.groups.records import group_metadata_record, group_tombstone
from broker.observability.log_fields import Fields
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.stored.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from protocol.messages.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)

if TYPE_CHECKING:
    from broker.groups.classic.group_metadata_manager import GroupMetadataManager
    from broker.groups.consumer.member_timers import MemberTimers
    from broker.groups.consumer.subscriptions import MemberUpdate
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.group_config import GroupConfig
    from broker.loop.clock import Clock
    from broker.observability.limited_log import LimitedLog


class Migration:
    """See the module's docstring."""

    def __init__(
        self,
        classic_groups: GroupMetadataManager,
        topics: GroupTopics,
        timers: MemberTimers,
        clock: Clock,
        config: GroupConfig,
        limited_log: LimitedLog,
    ) -> None:
        self._classic_groups = classic_groups
        self._topics = topics
        self._timers = timers
        self._clock = clock
        self._config = config
        self._limited_log = limited_log

    # Classic to consumer.

    def upgrade(self, classic: ClassicGroup) -> tuple[ConsumerGroup, GroupResult]:
        """The KIP-848 group that replaces a classic one, and the result that converts it. GROUP_ID_NOT_FOUND, as in Kafka, if the group
        cannot be converted."""
        if classic.is_empty:
            retire = partial(self._classic_groups.retire, classic)
            return ConsumerGroup(classic.group_id), GroupResult([group_tombstone(classic.group_id)], on_replayed=retire)
        self._check_upgrade(classic)
        try:
            group = self._converted(classic)
        except DecodeError as e:
            raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed") from e
        records = [group_tombstone(classic.group_id), *group_records(group)]
        return group, GroupResult(records, on_replayed=partial(self._upgraded, classic, list(group.members.values())))

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self._config.migration_policy.may_upgrade:
            raise _cannot_upgrade(classic, "online upgrade is disabled")
        if not classic.uses_consumer_protocol:
            raise _cannot_upgrade(classic, "the group does not use the consumer embedded protocol")
        if len(classic.members) > self._config.consumer_max_size:
            raise _cannot_upgrade(classic, "the group size exceeds the consumer group maximum size")

    def _converted(self, classic: ClassicGroup) -> ConsumerGroup:
        """The group with all members at their last assignment. Members that were in a rebalance begin another one. The group equals the one
        that its records make.

        After a second rebalance in a row there is no last assignment (Rebalance.reset_assignment). Cooperative members then still own
        partitions that other members get here, until they have joined again, as in Kafka 4.3.1 (ConsumerGroup.fromClassicGroup)."""
        group = ConsumerGroup(classic.group_id)
        subscriptions: dict[bytes, ConsumerProtocolSubscription] = {}  # most members subscribe to the same
        for stored in classic.members.values():
            partitions = self._partitions_of(classic, stored)
            assigned = {topic_id: dict.fromkeys(numbers, classic.generation) for topic_id, numbers in partitions.items()}
            # A new member need not offer the protocol that the others had chosen. Its subscription is the same in each of its protocols.
            metadata = stored.protocols.get(classic.protocol_name or "") or next(iter(stored.protocols.values()))
            subscription = subscriptions.get(metadata)
            if subscription is None:
                subscription = subscriptions[metadata] = decode_subscription(metadata)
            member = _consumer_member(stored, classic.generation, subscription, assigned)
            group.members[member.member_id] = member
            group.targets[member.member_id] = partitions
            group.count_member(member, 1)
            group.take_partitions(member)
            if member.instance_id is not None:
                group.static_members[member.instance_id] = member.member_id
        metadata_hash = self._topics.hash_of(group.subscribed_topics)
        group.epochs.update({GROUP_EPOCH: classic.generation, ASSIGNMENT_EPOCH: classic.generation, METADATA_HASH: metadata_hash})
        return group

    def _partitions_of(self, classic: ClassicGroup, member: ClassicGroupMember) -> Partitions:
        """The member's assignment. Empty if the member has joined and not sent SyncGroup yet."""
        if not member.assignment:
            return NO_PARTITIONS
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _cannot_upgrade(
                classic,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before "
                "re-attempting the upgrade",
            )
        return {
            topic_id: frozenset(topic.partitions)
            for topic in assignment.assigned_partitions
            if (topic_id := self._topics.find_id(topic.topic)) is not None
        }

    def _upgraded(self, classic: ClassicGroup, members: Collection[ConsumerGroupMember]) -> None:
        self._classic_groups.retire(classic)
        for member in members:
            assert member.classic is not None, "all members come from a classic group"
            self._timers.keep_session(classic.group_id, member.member_id, member.classic.session_timeout_ms)
        self._log_conversion(classic.group_id, "consumer", len(members))

    # Consumer to classic.

    def maybe_downgrade_without(self, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]) -> GroupResult | None:
        """The conversion to a classic group without the leaving members. None if a remaining member uses the consumer protocol or the group
        cannot be converted."""
        staying_count = len(group.members) - len(leaving)
        classic_staying_count = group.classic_member_count - sum(member.uses_classic_protocol for member in leaving)
        if classic_staying_count != staying_count or not staying_count or not self._may_downgrade(group, staying_count):
            return None
        gone = {member.member_id for member in leaving}
        staying = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
        try:
            return self._downgrade(group, [], staying, group.targets, list(group.members), "the last member of the consumer protocol left")
        except DecodeError:
            return None

    def is_downgraded_by(self, group: ConsumerGroup, instance_id: str | None) -> bool:
        """Whether the group becomes classic when a member with the classic protocol replaces this static member."""
        replaced = group.find_static_member(instance_id)
        if replaced is None or replaced.uses_classic_protocol or group.classic_member_count != len(group.members) - 1:
            return False
        return self._may_downgrade(group, len(group.members))

    def downgrade_with(self, update: MemberUpdate, joining: ConsumerGroupMember, *, is_assignment_stale: bool) -> GroupResult:
        """The conversion to a classic group in which `joining` has replaced a static member. The update's records come first.

        The members rebalance if the group's epoch is newer than the last assignment, or if a member has not reached its target. (Kafka does
        not check the latter: partitions that such a member waits for have no owner until the next rebalance.)"""
        group = update.group
        replaced = group.find_static_member(joining.instance_id)
        assert replaced is not None, "only a member that replaces a static one downgrades a group here"
        staying = {member_id: member for member_id, member in group.members.items() if member is not replaced}
        staying[joining.member_id] = joining
        targets = {**group.targets, joining.member_id: group.targets.get(replaced.member_id, NO_PARTITIONS)}
        stored_ids = [joining.member_id if member is replaced else member_id for member_id, member in group.members.items()]
        reason = None
        if is_assignment_stale:
            reason = "a static member is back, and the assignment is older than the group"
        elif not all(member.is_reconciled_to(group.epoch) for member in staying.values()):
            reason = "members were still to be given partitions"
        try:
            return self._downgrade(group, update.records, staying, targets, stored_ids, reason)
        except DecodeError as e:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group.group_id}: {e}.") from e

    def _may_downgrade(self, group: ConsumerGroup, member_count: int) -> bool:
        if not self._config.migration_policy.may_downgrade or member_count > self._config.max_size:
            facts = Fields(group=group.group_id, members=member_count)
            self._limited_log.info("group not downgraded", "group stays a consumer group, by configuration %s", facts)
            return False
        return True

    def _downgrade(
        self,
        group: ConsumerGroup,
        first_records: list[CoordinatorRecord],
        staying: Mapping[str, ConsumerGroupMember],
        targets: Mapping[str, Partitions],
        stored_ids: list[str],
        reason: str | None,
    ) -> GroupResult:
        """`reason` says why the members must rebalance. None if they need not."""
        classic = ClassicGroup(group.group_id, self._clock.now_ms())
        classic.generation = group.epoch
        for member in staying.values():
            classic.add(_classic_member(member))
        classic.protocol_name = classic.select_protocol()
        assignments: dict[str, bytes] = {}
        for member_id, stored in classic.members.items():
            version = version_of(stored.metadata(classic.protocol_name))
            assignments[member_id] = encode_assignment(self.protocol_assignment(targets.get(member_id, NO_PARTITIONS)), version)
        records = [*first_records, *group_tombstones(group, stored_ids), group_metadata_record(classic, assignments)]
        classic.settle(assignments)
        return GroupResult(records, on_replayed=partial(self._downgraded, list(group.members), classic, reason))

    def protocol_assignment(self, partitions: Mapping[bytes, Iterable[int]]) -> ConsumerProtocolAssignment:
        """The partitions in the classic protocol's format, without topics that no longer exist."""
        return ConsumerProtocolAssignment(
            assigned_partitions=[
                TopicPartition(topic=name, partitions=sorted(partitions[topic_id]))
                for topic_id in sorted(partitions)
                if (name := self._topics.name_of(topic_id)) is not None
            ]
        )

    def _downgraded(self, member_ids: Iterable[str], classic: ClassicGroup, reason: str | None) -> None:
        for member_id in member_ids:
            self._timers.cancel(classic.group_id, member_id)
        self._classic_groups.take_over(classic, reason)
        self._log_conversion(classic.group_id, "classic", len(classic.members))

    def _log_conversion(self, group_id: str, kind: str, members: int) -> None:
        facts = Fields(group=group_id, protocol=kind, members=members)
        self._limited_log.info("group converted", "group converted %s", facts)


def _consumer_member(
    stored: ClassicGroupMember, generation: int, subscription: ConsumerProtocolSubscription, assigned: Owned
) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        stored.member_id,
        member_epoch=generation,
        previous_member_epoch=generation,
        instance_id=stored.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=assigned,
        classic=ClassicMemberMetadata(
            session_timeout_ms=stored.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in stored.protocols.items()],
        ),
    )


def _classic_member(member: ConsumerGroupMember) -> ClassicGroupMember:
    assert member.classic is not None, "only members with the classic protocol are left"
    return ClassicGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols={protocol.name: bytes(protocol.metadata) for protocol in member.classic.supported_protocols},
    )


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
