"""Attacks on the group coordinator: groups without end, and members that come and go in the worst order."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.attack.attacker import Attacker
from tests.attack.target import ATTACKED_TOPIC
from tests.support.wire import WireClient

GROUPS = 60_000
DESCRIBED = 19_900
JOINED_GROUPS = 10_000
PIPELINED = 200  # requests sent ahead of their answers
LEAVERS = 8
ROUNDS = 100
SESSION_TIMEOUT_MS = 10_000
OLD_JOIN_VERSION = 2  # before KIP-394: the first join makes a member
JOIN_VERSION, LEAVE_VERSION, DESCRIBE_VERSION = 5, 3, 5


def make_many_groups(attacker: Attacker) -> None:
    """60,000 groups by a commit each, then all of them listed and 19,900 described."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=ATTACKED_TOPIC, partitions=[partition])]
    requests = [(OffsetCommitRequest(group_id=f"group-{number:06}", topics=topics), 8) for number in range(attacker.count(GROUPS))]
    _send_ahead(attacker, f"OffsetCommit of {len(requests)} new groups", requests)
    attacker.ask(f"ListGroups of {len(requests)} groups", ListGroupsRequest(), 4)
    ids = [f"group-{number:06}" for number in range(attacker.count(DESCRIBED))]
    attacker.ask(f"DescribeGroups of {len(ids)} ids", DescribeGroupsRequest(groups=ids), DESCRIBE_VERSION)
    attacker.ask(f"DescribeGroups of one id {len(ids)} times", DescribeGroupsRequest(groups=ids[:1] * len(ids)), DESCRIBE_VERSION)
    missing = DescribeGroupsRequest(groups=[f"no-{name}" for name in ids])
    attacker.ask(f"DescribeGroups of {len(ids)} missing ids", missing, DESCRIBE_VERSION)


def join_new_groups(attacker: Attacker) -> None:
    """A new group with each request, whose member is never heard of again: it expires with its session."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 100)]
    requests = [
        (_join(f"joined-{number}", "", protocols, session_timeout_ms=6_000), OLD_JOIN_VERSION)
        for number in range(attacker.count(JOINED_GROUPS))
    ]
    _send_ahead(attacker, f"JoinGroup of {len(requests)} new groups", requests)


def leave_behind_parked_joins(attacker: Attacker) -> None:
    """Members whose LeaveGroup is pipelined behind the JoinGroup that waits for the leader: the answer to the join starts the leave."""
    for number in range(attacker.count(ROUNDS, at_least=5)):
        group = f"leavers-{number}"
        with attacker.client() as leader, attacker.step("joins answered together, leaves behind them"):
            leader_id = _new_member(leader, group)
            leader.request(_join(group, leader_id), JOIN_VERSION)
            clients = [attacker.client() for _ in range(LEAVERS)]
            for client in clients:
                member_id = _new_member(client, group)
                client.send(_join(group, member_id), JOIN_VERSION)
                client.send(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)]), LEAVE_VERSION)
            codes = [leader.request(_join(group, leader_id), JOIN_VERSION).error_code]
            for client in clients:
                codes += [client.receive().error_code, client.receive().error_code]
                client.close()
            described = leader.request(DescribeGroupsRequest(groups=[group]), DESCRIBE_VERSION).groups[0]
            attacker.tally.answered += len(codes)
            if any(codes):
                attacker.failures.append(f"joins and leaves were answered with {sorted({ErrorCode(code).name for code in codes if code})}")
            if [member.member_id for member in described.members] != [leader_id]:
                attacker.failures.append(f"{len(described.members)} members are left in {group}, the leader alone should be")
            leader.request(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=leader_id)]), LEAVE_VERSION)


def _send_ahead(attacker: Attacker, name: str, requests: Sequence[tuple[object, int]]) -> None:
    """All requests over one connection, 200 in flight."""
    with attacker.client() as client, attacker.step(name):
        for place in range(0, len(requests), PIPELINED):
            part = requests[place : place + PIPELINED]
            for message, version in part:
                client.send(message, version)
            for _ in part:
                client.receive_frame()
                attacker.tally.answered += 1


def _new_member(client: WireClient, group: str) -> str:
    """The id that the first join is refused with (KIP-394)."""
    answer = client.request(_join(group, ""), JOIN_VERSION)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
    member_id: str = answer.member_id
    return member_id


def _join(
    group: str,
    member_id: str,
    protocols: list[JoinGroupRequestProtocol] | None = None,
    *,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols or [JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
