"""Groups that change their protocol while they have members (KIP-848's online migration).

A classic group of consumers becomes a KIP-848 group when the first member comes that speaks the consumer protocol: the others stay
members, with what they read and have, and go on speaking the classic protocol (ClassicMembers). It becomes a classic group again when
the last that speaks the consumer protocol is gone. `group.consumer.migration.policy` says which way is open.

Source: convertToConsumerGroup and convertToClassicGroup of GroupMetadataManager, ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup. Unlike there, a member's bytes that cannot be read do not keep another one from leaving: the group
stays what it is.

To make the other group and the records of it takes 50 µs for each member. That of a large group is prepared in pieces, beside the state
(UnpreparedError, Conversions). What was prepared holds as long as all that it was made of is as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from broker.coordination.records import CoordinatorRecord, EncodedRecords, ReplayedBeside
from broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from broker.groups.classic.classic_group_member import ClassicGroupMember
from broker.groups.consumer.group import ASSIGNMENT_EPOCH, GROUP_EPOCH, METADATA_HASH, ConsumerGroup
from broker.groups.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Owned, Partitions
from broker.groups.consumer.outcome import Outcome
from broker.groups.consumer.records import group_records, group_tombstones
from broker.groups.records import group_metadata_record, group_tombstone
from broker.loop.pieces import Pace, pieces
from broker.loop.turns import at_once
from broker.observability.log_fields import Fields
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.stored.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from protocol.messages.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)

if TYPE_CHECKING:
    from broker.groups.classic.group_metadata_manager import GroupMetadataManager
    from broker.groups.consumer.member_timers import MemberTimers
    from broker.groups.consumer.outcome import RecordWriter
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.consumer.subscriptions import MemberUpdate
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.group_config import GroupConfig
    from broker.loop.clock import Clock
    from broker.observability.limited_log import LimitedLog

Made = TypeVar("Made")


CONVERTED_AT_ONCE = 20
"""Members of a group that is converted with the request, in a millisecond."""

PARTITIONS_PER_ELEMENT = 10

MEMBER_ELEMENTS = 4
"""What making one member of another counts as, and one record, at 10 to 20 µs each (Pace)."""


class Upgrade(NamedTuple):
    """The group as `records` will make it."""

    group: ConsumerGroup
    outcome: Outcome


class UnpreparedError(Exception):
    """An operation converts a large group: it is to be tried again after `work`. It has changed nothing."""

    def __init__(self, work: Generator[None, None, None]) -> None:
        super().__init__()
        self.work = work


class _Prepared(NamedTuple):
    """What was made of what was `seen` of the group, or why it cannot be."""

    seen: Any
    made: Any


class Migration:
    """See the module's docstring."""

    def __init__(
        self,
        store: ConsumerGroupStore,
        classic_groups: GroupMetadataManager,
        topics: GroupTopics,
        timers: MemberTimers,
        clock: Clock,
        config: GroupConfig,
        writer: RecordWriter,
        limited_log: LimitedLog,
    ) -> None:
        self._store = store
        self._writer = writer
        self._prepared: dict[str, _Prepared] = {}
        self._unfinished: deque[Generator[None, None, None]] = deque()
        self._classic_groups = classic_groups
        self._topics = topics
        self._timers = timers
        self._clock = clock
        self._config = config
        self._limited_log = limited_log

    # Large groups.

    def forget(self, group_id: str) -> None:
        """Nobody asks for what was prepared for the group any more."""
        self._prepared.pop(group_id, None)

    def finish(self) -> Generator[None, None, None]:
        """What is left to do for large groups that were converted: their members' sessions."""
        while self._unfinished:
            yield from self._unfinished.popleft()

    def _make(self, group_id: str, member_count: int, seen: Any, work: Generator[None, None, Made]) -> Made:
        """What `work` makes of what was `seen`: now for a small group, by what was prepared for a large one."""
        if member_count <= CONVERTED_AT_ONCE:
            return at_once(work)
        prepared = self._prepared.pop(group_id, None)
        if prepared is None or prepared.seen != seen:
            raise UnpreparedError(self._prepare(group_id, seen, work))
        made: Made = prepared.made
        if isinstance(made, Exception):
            try:
                raise made
            finally:
                del made, prepared  # the exception's traceback holds this frame
        return made

    def _prepare(self, group_id: str, seen: Any, work: Generator[None, None, Any]) -> Generator[None, None, None]:
        try:
            made = yield from work
        except (KafkaError, DecodeError) as e:
            made = e
        self._prepared[group_id] = _Prepared(seen, made)
        made = None  # an exception's traceback holds this frame

    def _encode(
        self, records: list[CoordinatorRecord], more: Iterable[CoordinatorRecord], encoded: EncodedRecords, pace: Pace
    ) -> Generator[None, None, None]:
        """Append more records to the others, and to what is stored."""
        for record in more:
            records.append(record)
            encoded.add(self._writer.encode(record))
            if pace.is_due(MEMBER_ELEMENTS):
                yield

    def _begin_sessions(self, member_count: int, sessions: Generator[None, None, None]) -> None:
        if member_count <= CONVERTED_AT_ONCE:
            at_once(sessions)
        else:
            self._unfinished.append(sessions)

    # Classic to consumer.

    def upgrade(self, classic: ClassicGroup) -> Upgrade:
        """The KIP-848 group that takes the place of a classic one. GROUP_ID_NOT_FOUND, as Kafka calls it, if it cannot."""
        if classic.is_empty:
            group, records = ConsumerGroup(classic.group_id), [group_tombstone(classic.group_id)]
            return Upgrade(group, Outcome(records, on_replayed=partial(self._classic_groups.retire, classic)))
        self._check_upgrade(classic)
        members = list(classic.members.values())
        seen = (
            classic,
            classic.generation,
            classic.protocol_name,
            [(stored, stored.protocols, stored.assignment, stored.rebalance_timeout_ms, stored.session_timeout_ms) for stored in members],
        )
        return self._make(classic.group_id, len(members), seen, self._upgrade(classic, members))

    def _upgrade(self, classic: ClassicGroup, members: list[ClassicGroupMember]) -> Generator[None, None, Upgrade]:
        pace = Pace()
        try:
            group = yield from self._converted(classic, members, pace)
        except DecodeError as e:
            raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed") from e
        records: list[CoordinatorRecord] = []
        encoded = EncodedRecords(self._clock.now_ms())
        yield from self._encode(records, [group_tombstone(classic.group_id)], encoded, pace)
        yield from self._encode(records, group_records(group), encoded, pace)

        def adopt() -> None:
            self._classic_groups.drop(classic)
            self._store.adopt(group)

        on_replayed = partial(self._upgraded, classic, group)
        return Upgrade(group, Outcome(records, on_replayed=on_replayed, encoded=encoded, beside=ReplayedBeside(len(records), adopt)))

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self._config.migration_policy.may_upgrade:
            raise _cannot_upgrade(classic, "online upgrade is disabled")
        if not classic.uses_consumer_protocol:
            raise _cannot_upgrade(classic, "the group does not use the consumer embedded protocol")
        if len(classic.members) > self._config.consumer_max_size:
            raise _cannot_upgrade(classic, "the group size exceeds the consumer group maximum size")

    def _converted(self, classic: ClassicGroup, members: list[ClassicGroupMember], pace: Pace) -> Generator[None, None, ConsumerGroup]:
        """All members are where the last assignment sent them. Those that were in the middle of a rebalance begin another. The group is
        what its records make it.

        After a second rebalance in a row there is no last assignment (Rebalance.reset_assignment): cooperative members still have what
        others are given here, until they have joined again. The same in Kafka 4.3.1 (ConsumerGroup.fromClassicGroup)."""
        group = ConsumerGroup(classic.group_id)
        for stored in members:
            partitions = self._partitions_of(classic, stored)
            assigned = {topic_id: dict.fromkeys(numbers, classic.generation) for topic_id, numbers in partitions.items()}
            member = _consumer_member(stored, classic, assigned)
            group.members[member.member_id] = member
            group.targets[member.member_id] = partitions
            group.count_member(member, 1)
            group.take_partitions(member)
            if member.instance_id is not None:
                group.static_members[member.instance_id] = member.member_id
            if pace.is_due(MEMBER_ELEMENTS + sum(map(len, partitions.values())) // PARTITIONS_PER_ELEMENT):
                yield
        metadata_hash = self._topics.hash_of(group.subscribed_topics)
        group.epochs.update({GROUP_EPOCH: classic.generation, ASSIGNMENT_EPOCH: classic.generation, METADATA_HASH: metadata_hash})
        return group

    def _partitions_of(self, classic: ClassicGroup, member: ClassicGroupMember) -> Partitions:
        """What the member was assigned: nothing if it has joined and not asked yet."""
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

    def _upgraded(self, classic: ClassicGroup, group: ConsumerGroup) -> None:
        """`group` has those members already that the records behind these brought."""
        self._classic_groups.retire(classic)
        self._begin_sessions(len(classic.members), self._sessions(group, list(classic.members)))
        self._log_conversion(group.group_id, "consumer", len(group.members))

    def _sessions(self, group: ConsumerGroup, member_ids: list[str]) -> Generator[None, None, None]:
        for piece in pieces(member_ids):
            for member_id in piece:
                member = group.members.get(member_id)
                if member is not None and member.classic is not None and self._store.groups.get(group.group_id) is group:
                    self._timers.keep_session(group.group_id, member_id, member.classic.session_timeout_ms)
            yield

    # Consumer to classic.

    def maybe_downgrade_without(self, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]) -> Outcome | None:
        """The classic group of those that stay, if all of them speak the classic protocol; None if it stays what it is."""
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
        """Whether the group becomes classic when a member that speaks the classic protocol takes this static member's place."""
        replaced = group.find_static_member(instance_id)
        if replaced is None or replaced.uses_classic_protocol or group.classic_member_count != len(group.members) - 1:
            return False
        return self._may_downgrade(group, len(group.members))

    def downgrade_with(self, update: MemberUpdate, joining: ConsumerGroupMember, *, is_assignment_stale: bool) -> Outcome:
        """The classic group once `joining` has taken a static member's place, which the records of the update tell first.

        The members rebalance if the group has moved on since the last assignment, or one of them has not what that gives it. (Kafka does
        not look at the latter: what such a member waits for is nobody's until the next rebalance.)"""
        group = update.group
        replaced = group.find_static_member(joining.instance_id)
        assert replaced is not None, "a member that nobody made room for downgrades no group"
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
    ) -> Outcome:
        """`reason` is why the members have to rebalance; None if they have not."""
        parts = _DowngradeParts(group, first_records, list(staying.values()), dict(targets), stored_ids, reason)
        seen = (parts, group.epoch, dict(group.regular_expressions), list(group.members))
        return self._make(group.group_id, len(group.members), seen, self._downgrade_parts(parts))

    def _downgrade_parts(self, parts: _DowngradeParts) -> Generator[None, None, Outcome]:
        group, pace = parts.group, Pace()
        classic = ClassicGroup(group.group_id, self._clock.now_ms())
        classic.generation = group.epoch
        for member in parts.staying:
            classic.add(_classic_member(member))
            if pace.is_due(MEMBER_ELEMENTS):
                yield
        classic.protocol_name = classic.select_protocol()
        assignments: dict[str, bytes] = {}
        for member in parts.staying:
            target = parts.targets.get(member.member_id, NO_PARTITIONS)
            metadata = classic.members[member.member_id].metadata(classic.protocol_name)
            assignments[member.member_id] = self._assignment(target, metadata)
            if pace.is_due(MEMBER_ELEMENTS + sum(map(len, target.values())) // PARTITIONS_PER_ELEMENT):
                yield
        records: list[CoordinatorRecord] = []
        encoded = EncodedRecords(self._clock.now_ms())
        yield from self._encode(records, parts.first_records, encoded, pace)
        yield from self._encode(records, group_tombstones(group, parts.stored_ids), encoded, pace)
        yield
        yield from self._encode(records, [group_metadata_record(classic, assignments)], encoded, pace)
        yield
        classic.settle(assignments)

        def adopt() -> None:
            self._store.drop(group)
            self._classic_groups.adopt(classic)

        on_replayed = partial(self._downgraded, group, classic, parts.reason)
        return Outcome(records, on_replayed=on_replayed, encoded=encoded, beside=ReplayedBeside(len(records), adopt))

    def _assignment(self, target: Partitions, metadata: bytes) -> bytes:
        return encode_assignment(self.protocol_assignment(target), version_of(metadata))

    def protocol_assignment(self, partitions: Mapping[bytes, Iterable[int]]) -> ConsumerProtocolAssignment:
        """The partitions as members of the classic protocol are told them. Topics that are gone are left out."""
        return ConsumerProtocolAssignment(
            assigned_partitions=[
                TopicPartition(topic=name, partitions=sorted(partitions[topic_id]))
                for topic_id in sorted(partitions)
                if (name := self._topics.name_of(topic_id)) is not None
            ]
        )

    def _downgraded(self, group: ConsumerGroup, classic: ClassicGroup, reason: str | None) -> None:
        for member_id in group.members:
            self._timers.cancel(group.group_id, member_id)
        self._classic_groups.take_over(classic, reason)
        self._begin_sessions(len(group.members), self._classic_groups.sessions(classic))
        self._log_conversion(group.group_id, "classic", len(classic.members))

    def _log_conversion(self, group_id: str, kind: str, members: int) -> None:
        facts = Fields(group=group_id, protocol=kind, members=members)
        self._limited_log.info("group converted", "group converted %s", facts)


class _DowngradeParts(NamedTuple):
    """What the classic group is made of: see `_downgrade`."""

    group: ConsumerGroup
    first_records: list[CoordinatorRecord]
    staying: list[ConsumerGroupMember]
    targets: dict[str, Partitions]
    stored_ids: list[str]
    reason: str | None


def _consumer_member(stored: ClassicGroupMember, classic: ClassicGroup, assigned: Owned) -> ConsumerGroupMember:
    # One that has just come need not offer what the others agreed on before. It subscribes to the same with each protocol.
    metadata = stored.protocols.get(classic.protocol_name or "") or next(iter(stored.protocols.values()))
    subscription = decode_subscription(metadata)
    return ConsumerGroupMember(
        stored.member_id,
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
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
    assert member.classic is not None, "only members that speak the classic protocol are left"
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
