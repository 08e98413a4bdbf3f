"""Members that send ahead: a request behind one that waits starts after what answers the first one has come to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from tests.support.broker import BrokerProcess
from tests.support.fixtures import new_server
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

GROUP = "pipelined"
SESSION_TIMEOUT_MS = 20_000
COORDINATOR_IS_COMING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = new_server(tmp_path, {"group.initial.rebalance.delay.ms": "300"})
    process.start()
    yield process
    process.stop()
    if isinstance(process, BrokerProcess):
        log = process.log_path.read_text()
        assert "Traceback" not in log
        assert " ERROR " not in log


def join(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def new_member_id(client: WireClient) -> str:
    """The id that a first JoinGroup fetches, once there is a coordinator."""
    while True:
        response = client.request(join(""), 4)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member_id: str = response.member_id
            return member_id
        assert response.error_code in COORDINATOR_IS_COMING
        client.request(FindCoordinatorRequest(key=GROUP), 2)


@pytest.mark.parametrize("leaving_count", [1, 3])
def test_leaving_right_behind_a_join_that_waits_disturbs_nobody(server: ServerProcess, leaving_count: int) -> None:
    with ExitStack() as connections:
        clients = [connections.enter_context(WireClient(server.host, server.port)) for _ in range(4)]
        member_ids = [new_member_id(client) for client in clients]
        for number, (client, member_id) in enumerate(zip(clients, member_ids, strict=True)):
            client.send(join(member_id), 4)
            if number < leaving_count:
                client.send(LeaveGroupRequest(group_id=GROUP, member_id=member_id), 2)

        joins: list[JoinGroupResponse] = [client.receive() for client in clients]
        leaves = [client.receive() for client in clients[:leaving_count]]
        (described,) = clients[-1].request(DescribeGroupsRequest(groups=[GROUP]), 3).groups
        heartbeat = clients[-1].request(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_ids[-1]), 1)

    assert [(answer.error_code, answer.generation_id) for answer in joins] == [(ErrorCode.NONE, 1)] * 4
    (leader,) = [answer for answer in joins if answer.leader == answer.member_id]
    assert {member.member_id for member in leader.members} == set(member_ids)
    assert [answer.error_code for answer in leaves] == [ErrorCode.NONE] * leaving_count
    assert {member.member_id for member in described.members} == set(member_ids[leaving_count:])
    assert described.group_state == "PreparingRebalance"
    assert heartbeat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
