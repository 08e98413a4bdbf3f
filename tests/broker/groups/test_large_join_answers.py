"""The leader of a classic group is told all its members; of many in turns of the loop, while the group and its clients go on."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from broker.dispatch import KafkaApis
from broker.loop.deferred import Deferred
from broker.loop.turns import PIECE_ELEMENTS, YIELDS_AT_ONCE
from broker.network.context import ConnectionFacts, ListenerFacts
from protocol.apis import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest
from tests.broker.groups.harness import GroupHandlers
from tests.broker.groups.transcript import Transcript
from tests.broker.loop.turn_loop import TurnLoop

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
AT_ONCE = PIECE_ELEMENTS * YIELDS_AT_ONCE
MANY = 4 * AT_ONCE
SESSION_TIMEOUT_MS = 30_000


class Client:
    """One connection, and the member behind it; `answer` is that to its last request."""

    def __init__(self, group: Group, name: str) -> None:
        self._group = group
        self.name = name
        self.member_id = ""
        self.pending: Deferred | None = None
        self._answer: Any = None

    def send(self, api_key: int, version: int, request: Any) -> None:
        api = APIS[api_key]
        head = struct.pack(">hhih", api_key, version, 7, 0) + (b"\0" if api.request_header_version(version) >= 2 else b"")
        self._answer = None
        outcome = self._group.apis.handle(memoryview(bytearray(head + encode(request, version))), self._group.facts)

        def answered(chunks: Any) -> None:
            header_size = 9 if api.response_header_version(version) >= 1 else 8
            self._answer = decode(api.response_class, version, memoryview(b"".join(chunks))[header_size:])[0]

        if isinstance(outcome, Deferred):
            self.pending = outcome
            outcome.when_done(answered)
        else:
            answered(outcome)

    def join(self, version: int = 9, *, metadata: bytes | None = None, is_static: bool = False) -> None:
        self.send(JOIN, version, JoinGroupRequest(
            group_id="g", session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=60_000, member_id=self.member_id,
            group_instance_id=self.name if is_static else None, protocol_type="test",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=self.name.encode() if metadata is None else metadata)],
        ))  # fmt: skip

    @property
    def answer(self) -> Any:
        """None while there is none."""
        return self._answer


class Group:
    """A group of `count` members, whose leader is the first, over the real dispatch. It has ended its join phase; those who are told in
    turns are not told yet."""

    def __init__(self, count: int, *, version: int = 9, is_static: bool = False) -> None:
        self.script = Transcript(initial_rebalance_delay_ms=1_000)
        self.loop = TurnLoop()
        self.apis = KafkaApis(GroupHandlers(self.script).services, self.loop.turns)
        self.facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        self.clients = [Client(self, f"m{number:05}") for number in range(count)]
        for client in self.clients:
            client.join(version, is_static=is_static)
            if client.answer is not None:  # KIP-394
                client.member_id = client.answer.member_id
                client.join(version)
        while not self.has_joined:
            self.script.advance(1_000)
        self.leader, *self.others = self.clients
        self.in_turns_at_first = len(self.loop.turns)
        for client in self.others:
            client.member_id = client.answer.member_id

    @property
    def has_joined(self) -> bool:
        return all(client.answer is not None for client in self.clients[1:])

    @property
    def member_ids(self) -> list[str]:
        return [*self.script.groups["g"].members]


def listed(response: JoinGroupResponse) -> list[tuple[str, bytes]]:
    return [(member.member_id, member.metadata) for member in response.members]


@pytest.mark.parametrize("version", [0, 5, 9])
@pytest.mark.parametrize("count", [2, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, MANY + 7])
def test_the_leader_is_told_every_member_whatever_their_number(count: int, version: int) -> None:
    group = Group(count, version=version)

    group.loop.run()

    answer = group.leader.answer
    assert answer == JoinGroupResponse(
        generation_id=1, protocol_type="test" if version >= 7 else None, protocol_name="p", leader=group.member_ids[0],
        member_id=group.member_ids[0],
        members=[
            JoinGroupResponseMember(member_id=member_id, metadata=client.name.encode())
            for member_id, client in zip(group.member_ids, group.clients, strict=True)
        ],
    )  # fmt: skip
    assert not any(client.answer.members for client in group.others)


def test_others_are_served_while_the_leaders_answer_is_made() -> None:
    group = Group(MANY)
    assert group.leader.answer is None and group.in_turns_at_first == 1

    beats = 0
    while group.leader.answer is None:
        group.loop.turn()
        client = group.others[beats]
        client.send(HEARTBEAT, 4, HeartbeatRequest(group_id="g", generation_id=1, member_id=client.member_id))
        assert client.answer.error_code == ErrorCode.NONE
        beats += 1

    assert beats > 2
    assert len(group.leader.answer.members) == MANY


def test_members_that_leave_or_change_meanwhile_are_told_as_they_were() -> None:
    """As if the answer had been on its way; what the leader hands in for them then is refused, because they rebalance."""
    group = Group(MANY)
    expected = [(member_id, client.name.encode()) for member_id, client in zip(group.member_ids, group.clients, strict=True)]
    gone, changed = group.others[-1], group.others[-2]

    gone.send(LEAVE, 5, LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=gone.member_id)]))
    changed.join(metadata=b"other")
    group.loop.run()

    leader = group.leader
    assert listed(leader.answer) == expected
    leader.send(SYNC, 4, SyncGroupRequest(group_id="g", generation_id=1, member_id=leader.answer.member_id))
    assert leader.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_this_broker_loses_meanwhile_is_told_nevertheless() -> None:
    group = Group(MANY)
    expected = group.member_ids

    group.script.coordinator.runtime.on_resigned(0)
    group.script.advance(0)
    group.loop.run()

    assert [member_id for member_id, _ in listed(group.leader.answer)] == expected


def test_nothing_is_made_for_a_leader_whose_connection_is_gone() -> None:
    group = Group(MANY)
    assert len(group.loop.turns) == 1 and group.leader.pending is not None

    group.leader.pending.abandon()
    group.loop.run()

    assert len(group.loop.turns) == 0 and group.leader.answer is None
    group.script.advance(SESSION_TIMEOUT_MS)
    assert len(group.script.groups["g"].members) < MANY, "its session ends as any other"


def test_a_leader_that_asks_again_is_told_in_turns_too() -> None:
    """It had missed the answer."""
    group = Group(MANY)
    group.loop.run()
    first = group.leader.answer
    group.leader.member_id = first.member_id

    group.leader.join()

    assert group.leader.answer is None
    group.loop.run()
    assert group.leader.answer == first


def test_a_static_leader_that_comes_back_is_told_in_turns_too() -> None:
    """KIP-814: it gets the members, for it watches their topics, and skips the assignment."""
    group = Group(MANY, is_static=True)
    group.loop.run()
    leader = group.leader
    leader.member_id = leader.answer.member_id
    leader.send(SYNC, 4, SyncGroupRequest(group_id="g", generation_id=1, member_id=leader.member_id, group_instance_id=leader.name))
    group.script.advance(0)
    assert leader.answer.error_code == ErrorCode.NONE

    leader.member_id = ""
    leader.join(is_static=True)
    group.script.advance(0)

    assert leader.answer is None
    group.loop.run()
    assert leader.answer.skip_assignment
    assert {member.group_instance_id for member in leader.answer.members} == {client.name for client in group.clients}
