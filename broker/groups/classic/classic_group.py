"""One classic group: its members, its state and the rules that need nothing but the group (Kafka's ClassicGroup).

Owns the membership data and keeps it consistent; asks nobody for the time and sends nothing. GroupMetadataManager decides
what happens to a group, this says what a group is. Only GroupMetadataManager and Rebalance change it; everyone else reads.

Invariants
- `awaiting_join_count` is the number of members whose JoinGroup waits for an answer.
- `supported_protocols[name]` is the number of members that offered the protocol `name`.
- `static_members` maps each group.instance.id to the one member that holds it now.
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
"""The protocol type of consumers; for these groups the coordinator can read which topics a member subscribed to."""


Answer = tuple[Reply, JoinGroupResponse | SyncGroupResponse]
"""A member's answer and its receiver; given to `send_answers`."""


_PROTOCOLS = attrgetter("protocols")


class GroupState(Enum):
    """A classic group's state; the value is the name that ListGroups and DescribeGroups show."""

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
"""The whole state machine: a group may enter the key's state only from these."""


class ClassicGroup:
    """A group as it is in memory: what its last stored GroupMetadataValue said, and the rebalance in flight on top of it."""

    def __init__(self, group_id: str, now_ms: int, *, is_appended: bool = False) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms
        """When the state was entered, wall clock; -1 for a group loaded from a record too old to say."""
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
        """Whether a record of it is in the log, committed or not."""
        self.rebalance_reason = ""
        """Why a rebalance runs, for the log; "" between rebalances."""

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group that a stored GroupMetadataValue describes: stable if it has members, else empty."""
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
        """Make a group that was just put together the one that is stored with these assignments."""
        for member_id, assignment in assignments.items():
            self.members[member_id].assignment = assignment
        self.is_appended = True
        self.state = GroupState.STABLE
        self.subscribed_topics = self._read_subscribed_topics()

    # What the group is.

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
        """The longest rebalance timeout of any member: no member is removed from a rebalance before its own is over."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def known_member_ids(self) -> Iterator[str]:
        """Of its members and of those that have yet to join."""
        return chain(self.members, self.pending_join_members)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be reading `topic`; a consumer group with unreadable subscriptions may be reading anything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports_protocols(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether a member offering `protocols` could join: all others must share at least one of them."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(self.supported_protocols[name] == len(self.members) for name in protocols)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member took over the static member's instance id."""
        if group_instance_id is not None:
            current_member_id = self.static_members.get(group_instance_id)
            if current_member_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def validate_offset_commit(self, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """Raise unless this member of this generation may commit now. No member and no generation: a simple consumer or a tool."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        else:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_deletable(self) -> None:
        """Raise NON_EMPTY_GROUP while the group has members."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offsets_deletable(self) -> None:
        """Raise NON_EMPTY_GROUP while members of whose topics nothing is known may need the offsets. Those of consumers are asked of
        `is_subscribed_to`."""
        if not self.is_empty and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # Changes.

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicGroupMember) -> None:
        """Take a new member in; the first one gives the group its protocol type and leads it."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, "replace_static_member is the way to take over an instance"
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
        """Forget a member or a pending member; another member leads if the leader went."""
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
        """Take over what a member's new JoinGroup says of it."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static_member(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a static member its new member id; what still waits under the old id is fenced (KIP-345)."""
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
            # The next SyncGroup of this instance comes under its new id.
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        self.static_members[group_instance_id] = new_member_id
        send_answers(answers)
        return new_member

    def elect_joined_leader(self) -> bool:
        """Make sure the leader is a member that is waiting in the join phase; False if there is none."""
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
        """The protocol with most votes among those every member supports; each member votes for its first such."""
        candidates = {name for name, count in self.supported_protocols.items() if count == len(self.members)}
        # Nearly always each member's first is one. No Python code for each: of 10,000 members that takes 1 ms instead of 10.
        votes: Counter[str] = Counter(map(next, map(iter, map(_PROTOCOLS, self.members.values()))))
        if not votes.keys() <= candidates:
            votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def start_next_generation(self, now_ms: int) -> None:
        """End of the join phase: the next generation, waiting for its leader's assignment, or empty if nobody is left."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._read_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_sync_members.clear()

    # Answers to members that wait. Taking them changes the group, sending them comes last: a receiver must find the group
    # as the answer says it is, and no loop over members may be under way.

    def await_join(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Park the member's JoinGroup. An older one that still waits was given up by its client, yet must not hang."""
        older = self.take_join(member, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.awaiting_join = reply
        self.awaiting_join_count += 1
        send_answers(older)

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> None:
        """Answer the member's JoinGroup if one waits."""
        send_answers(self.take_join(member, response))

    def take_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> list[Answer]:
        """The answer to the member's JoinGroup, if one waits; from now on none does. Comes before the member's removal, which counts
        who still waits."""
        reply = self.release_join(member)
        return [] if reply is None else [(reply, response)]

    def release_join(self, member: ClassicGroupMember) -> Reply | None:
        """Who has to be given the answer to the member's JoinGroup, if one waits; from now on none does."""
        reply = member.awaiting_join
        if reply is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
        return reply

    def await_sync(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Park the member's SyncGroup; as for joins, an older one gets an answer that sends its client back to join."""
        older = self.take_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = reply
        send_answers(older)

    def take_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> list[Answer]:
        """The answer to the member's SyncGroup, if one waits; from now on none does."""
        reply = self.release_sync(member)
        return [] if reply is None else [(reply, response)]

    def release_sync(self, member: ClassicGroupMember) -> Reply | None:
        """The same for its SyncGroup."""
        reply = member.awaiting_sync
        member.awaiting_sync = None
        return reply

    def take_answers(self, member: ClassicGroupMember, join: JoinGroupResponse, sync: SyncGroupResponse) -> list[Answer]:
        """The answers to whatever of the member's waits."""
        return self.take_join(member, join) + self.take_sync(member, sync)

    def join_response(self, member_id: str) -> JoinGroupResponse:
        """The answer to a successful JoinGroup: this generation."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member_id,
        )

    def leader_response(self, member_id: str) -> JoinGroupResponse:
        """What the leader is told: this generation, and who is in it."""
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
        """The topics of all members' subscriptions; None when the group's protocol does not say or cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            # Most groups' members all say the same, and to read it takes longer than all else that a generation needs.
            metadata: bytes
            for metadata in set(map(itemgetter(self.protocol_name), map(_PROTOCOLS, self.members.values()))):
                topics.update(decode_subscription(metadata).topics)
        except DecodeError:
            return None
        return frozenset(topics)


def send_answers(answers: list[Answer]) -> None:
    """Tell members what was taken for them, in order."""
    for reply, response in answers:
        reply.complete(response)
