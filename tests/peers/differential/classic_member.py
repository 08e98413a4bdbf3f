"""A classic consumer's side of the group protocol, in a KIP-848 group or alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.stored.consumer_protocol import ConsumerProtocolSubscription, TopicPartition, decode_assignment
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.messages.sync_group import SyncGroupRequest
from tests.peers.differential.consumer_group_steps import ClassicBeat, ClassicJoin, ClassicLeave, ClassicSync, Epoch, MemberId, Owned
from tests.peers.differential.fuzzer import Connection
from tests.support.wire import CLIENT_ID

MEMBER_ID_REQUIRED = 79
TIMEOUT_MS = 60_000
"""Of sessions and rebalances: longer than a seed takes."""
FIRST_FIXED_ID = "`"
"""The first in order of the member ids that the fuzzer chooses."""


@dataclass(slots=True)
class ClassicMember:
    """What it knows by the answers."""

    member_id: str = ""
    ids: dict[str, None] = field(default_factory=dict)
    """All that it has had or was offered, in their order: the group may still have members of the older ones."""
    generation: int = -1
    previous_generation: int = -1
    protocol_name: str | None = None
    owned: list[TopicPartition] = field(default_factory=list)
    owned_before: list[TopicPartition] = field(default_factory=list)

    def epoch(self, epoch: Epoch) -> int:
        return {Epoch.PRESENT: self.generation, Epoch.PREVIOUS: self.previous_generation, Epoch.AHEAD: 99}.get(epoch, -1)

    def join(self, connection: Connection, group_id: str, step: ClassicJoin, topics: list[str]) -> Any:
        owned = {Owned.ASSIGNED: self.owned, Owned.BEFORE: self.owned_before}.get(step.owned, [])
        subscription = ConsumerProtocolSubscription(topics=topics, owned_partitions=owned, generation_id=self.generation)
        metadata = encode_with_version(subscription, 0 if step.owned is Owned.UNSAID else 2)
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id={MemberId.KNOWN: self.member_id, MemberId.NONE: "", MemberId.UNKNOWN: "unknown"}[step.member_id],
            group_instance_id=step.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in step.protocols],
        )
        answer = connection.ask(request, step.version)
        while answer.error_code == MEMBER_ID_REQUIRED and _is_behind_others(answer.member_id):
            answer = connection.ask(request, step.version)
        if answer.error_code in (0, MEMBER_ID_REQUIRED) and answer.member_id:  # a refusal repeats what the request said
            self.ids[answer.member_id] = None
            if answer.error_code == 0 or not self._goes_on_without(answer.member_id):
                self.member_id = answer.member_id
        if answer.error_code == 0:
            self.previous_generation, self.generation = self.generation, answer.generation_id
            self.protocol_name = answer.protocol_name
        return answer

    def _goes_on_without(self, offered_id: str) -> bool:
        """Whether the offered id is not taken: in a KIP-848 group two ids that the broker draws would be in another order in the other
        broker. In a classic group an id that nobody takes would hold up the others."""
        return bool(self.member_id) and not offered_id.startswith(CLIENT_ID)

    def sync(self, connection: Connection, group_id: str, step: ClassicSync) -> Any:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=self.epoch(step.epoch),
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.protocol_name,
        )
        answer = connection.ask(request, step.version)
        if answer.error_code == 0 and answer.assignment:
            self.owned_before, self.owned = self.owned, decode_assignment(answer.assignment).assigned_partitions
            answer.assignment = decode_assignment(answer.assignment)
        return answer

    def beat(self, connection: Connection, group_id: str, step: ClassicBeat) -> Any:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=self.epoch(step.epoch), member_id=self.member_id, group_instance_id=step.instance_id
        )
        return connection.ask(request, step.version)

    def leave(self, connection: Connection, group_id: str, step: ClassicLeave) -> Any:
        if step.version < 3:
            return connection.ask(LeaveGroupRequest(group_id=group_id, member_id=self.member_id), step.version)
        member_id = self.member_id if step.instance_id is None else ""
        identity = MemberIdentity(member_id=member_id, group_instance_id=step.instance_id)
        return connection.ask(LeaveGroupRequest(group_id=group_id, members=[identity]), step.version)


def _is_behind_others(member_id: str) -> bool:
    """Whether the id of a KIP-848 group's member is not before all fixed ones. The range assignor goes by the order of the ids, and both
    brokers draw all of such an id: where one's is before "a" and the other's behind it, they give partitions to different members. In a
    classic group the id begins with the client's id, and to ask again would leave a pending member."""
    return not member_id.startswith(CLIENT_ID) and member_id > FIRST_FIXED_ID
