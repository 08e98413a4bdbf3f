"""One classic group: its members, its state and the rules that need nothing but the group (Kafka's ClassicGroup).

Owns the membership data and keeps it consistent. It has no clock and sends nothing. GroupMetadataManager and Rebalance decide what happens
to a group, and only they change it.

Invariants
- `awaiting_join_count` is the number of members whose JoinGroup waits for a response.
- `supported_protocols[name]` is the number of members that offered the protocol `name`.
- `static_members` maps each group.instance.id to the member that has it now.
- `pending_join_members` holds member ids that were handed out (KIP-394) but have not joined: disjoint from `members`.
- `leader_id` names a member whenever there is one.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from broker.groups.classic.classic_group_member import ClassicGroupMember, Reply
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.stored.consumer_protocol import decode_subscription
from protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from protocol.messages.stored.group_records import GroupMetadataValue

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers. In such groups the coordinator can read which topics a member subscribes to."""


Answer = tuple[Reply, JoinGroupResponse | SyncGroupResponse]
"""A receiver and the response for it. `send_answers` sends it."""


_PROTOCOLS = attrgetter("protocols")


class GroupState(Enum):
    """A classic group's state. The value is the name in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The state machine: a group may enter the key's state only from these states."""


class ClassicGroup:
    """A group in memory: its last stored GroupMetadataValue, and the rebalance in progress."""

    def __init__(self, group_id: str, now_ms: int, *, is_appended: bool = False) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms
        """When the group entered its state, wall clock. -1 if it was loaded from an old record, which does not have the time."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.supported_protocols: Counter[str] = Counter()
        self.subscribed_topics: frozenset[str] | None = None
        self.awaiting_join_count = 0
        self.metadata_size_bytes = 0
        self.new_member_added = False
        self.is_appended = is_appended
        """Whether the log has a record of the group, committed or not."""
        self.rebalance_reason = ""
        """The reason of the rebalance in progress, for the log. "" between rebalances."""

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group of a stored GroupMetadataValue: stable if it has members, else empty."""
        group = cls(group_id, value.current_state_timestamp, is_appended=True)
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.generation = value.generation
        group.leader_id = value.leader
        for stored in value.members:
            group.add(ClassicGroupMember.from_record(stored, value.protocol_type, value.protocol))
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.subscribed_topics = group._read_subscribed_topics()
        return group

    def settle(self, assignments: Mapping[str, bytes]) -> None:
        """Set a new group's state and assignments to those that are stored for it."""
        for member_id, assignment in assignments.items():
            self.members[member_id].assignment = assignment
        self.is_appended = True
        self.state = GroupState.STABLE
        self.subscribed_topics = self._read_subscribed_topics()

    # Questions.

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members, so that every member has its own timeout to rejoin."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def known_member_ids(self) -> Iterator[str]:
        """The ids of its members and of pending members."""
        return chain(self.members, self.pending_join_members)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be reading `topic`. True for every topic if the subscriptions of a consumer group cannot be read."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports_protocols(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether a member that offers `protocols` may join: all members must support at least one of them."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(self.supported_protocols[name] == len(self.members) for name in protocols)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID if there is no such member, or FENCED_INSTANCE_ID if another member has the instance id now."""
        if group_instance_id is not None:
            current_member_id = self.static_members.get(group_instance_id)
            if current_member_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        """Raise unless this member of this generation may commit now. A request without either is from a simple consumer or a tool, or from
        a producer of old: in a transaction nothing is checked then. Nor does it matter there that the group rebalances."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_deletable(self) -> None:
        """Raise NON_EMPTY_GROUP while the group has members."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offsets_deletable(self) -> None:
        """Raise NON_EMPTY_GROUP while the group has members whose topics the coordinator cannot read. The caller checks the topics of
        consumers by `is_subscribed_to`."""
        if not self.is_empty and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # Changes.

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member. The first one gives the group its protocol type and becomes the leader."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, "only replace_static_member gives an instance id to another member"
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type, "the caller checks supports_protocols first"
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.is_awaiting_join:
            self.awaiting_join_count += 1
        self.pending_join_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member. If it was the leader, another member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.is_awaiting_join:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: dict[str, bytes],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member from its new JoinGroup."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static_member(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a static member its new member id. Requests that wait under the old id are fenced (KIP-345)."""
        old_member = self.members[old_member_id]
        answers = self.take_answers(
            old_member,
            JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id),
            SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID),
        )
        del self.members[old_member_id]
        new_member = old_member.with_member_id(new_member_id)
        self.members[new_member_id] = new_member
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync_members:
            # The instance's next SyncGroup has the new id.
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        self.static_members[group_instance_id] = new_member_id
        send_answers(answers)
        return new_member

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, if the present leader has not. False if no member has joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support. Each member votes for its first one of them."""
        candidates = {name for name, count in self.supported_protocols.items() if count == len(self.members)}
        # Nearly always all members support each member's first protocol. Counter and map need 1 ms for 10,000 members, a Python loop 10.
        votes: Counter[str] = Counter(map(next, map(iter, map(_PROTOCOLS, self.members.values()))))
        if not votes.keys() <= candidates:
            votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def start_next_generation(self, now_ms: int) -> None:
        """End the join phase: the next generation waits for its leader's assignment, or is empty if no member is left."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._read_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_sync_members.clear()

    # Responses to waiting members. Taking them changes the group; sending them comes last. A receiver must find the group as its response
    # says, and no loop over members may be running.

    def await_join(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Park the member's JoinGroup. An older one that still waits is answered too, although its client has given it up."""
        older = self.take_join(member, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.awaiting_join = reply
        self.awaiting_join_count += 1
        send_answers(older)

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> None:
        """Answer the member's JoinGroup, if one waits."""
        send_answers(self.take_join(member, response))

    def take_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> list[Answer]:
        """The response to the member's JoinGroup, if one waits, which it does no longer. Call it before the member's removal, because that
        counts waiting members."""
        reply = self.release_join(member)
        return [] if reply is None else [(reply, response)]

    def release_join(self, member: ClassicGroupMember) -> Reply | None:
        """The receiver of the response to the member's JoinGroup, if one waits, which it does no longer."""
        reply = member.awaiting_join
        if reply is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
        return reply

    def await_sync(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Park the member's SyncGroup. An older one that still waits gets REBALANCE_IN_PROGRESS."""
        older = self.take_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = reply
        send_answers(older)

    def take_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> list[Answer]:
        """The response to the member's SyncGroup, if one waits, which it does no longer."""
        reply = self.release_sync(member)
        return [] if reply is None else [(reply, response)]

    def release_sync(self, member: ClassicGroupMember) -> Reply | None:
        """The receiver of the response to the member's SyncGroup, if one waits, which it does no longer."""
        reply = member.awaiting_sync
        member.awaiting_sync = None
        return reply

    def take_answers(self, member: ClassicGroupMember, join: JoinGroupResponse, sync: SyncGroupResponse) -> list[Answer]:
        """The responses to the member's JoinGroup and SyncGroup, if they wait."""
        return self.take_join(member, join) + self.take_sync(member, sync)

    def join_response(self, member_id: str) -> JoinGroupResponse:
        """The response to a successful JoinGroup, with this generation."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member_id,
        )

    def leader_response(self, member_id: str) -> JoinGroupResponse:
        """The leader's response: this generation with its members."""
        response = self.join_response(member_id)
        protocol_name = self.protocol_name or ""
        response.members = [
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.protocols[protocol_name]
            )
            for member in self.members.values()
        ]
        return response

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        for name in member.protocols:
            self.supported_protocols[name] += change
            if self.supported_protocols[name] == 0:
                del self.supported_protocols[name]
        self.metadata_size_bytes += change * member.metadata_size_bytes

    def _read_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members' subscriptions. None if the group is not one of consumers or a subscription cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            # In most groups all members send the same subscription. Reading it takes longer than the rest of a new generation.
            metadata: bytes
            for metadata in set(map(itemgetter(self.protocol_name), map(_PROTOCOLS, self.members.values()))):
                topics.update(decode_subscription(metadata).topics)
        except DecodeError:
            return None
        return frozenset(topics)


def send_answers(answers: list[Answer]) -> None:
    """Send the responses, in order."""
    for reply, response in answers:
        reply.complete(response)
