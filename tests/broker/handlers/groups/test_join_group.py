"""JoinGroup's answers by version."""

import pytest

from broker.handlers.groups import join_group
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.groups.harness import GroupHandlers, over_the_wire, versions


def request(member_id: str = "", **fields: object) -> JoinGroupRequest:
    defaults = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"m")],
    }
    return JoinGroupRequest(**(defaults | fields))


@pytest.mark.parametrize("version", versions(11))
def test_member_joins_with_every_version(version: int):
    handlers = GroupHandlers()
    member_id = ""
    if version >= 4:
        refused = handlers.call(join_group, version, request())
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id = refused.member_id

    waiting = handlers.send(join_group, version, request(member_id))
    handlers.script.advance(0)

    response = over_the_wire(waiting.value, version)
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
    assert [member.member_id for member in response.members] == [response.leader] == [response.member_id]


@pytest.mark.parametrize("version", versions(11))
def test_error_is_told_with_every_version(version: int):
    response = GroupHandlers().call(join_group, version, request("unknown"))

    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "unknown")
    assert response.protocol_name == ("" if version < 7 else None)


def test_group_error_is_told_with_the_requests_member_id():
    response = GroupHandlers().call(join_group, 9, request("m", group_id=""))

    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")


def test_version_0_waits_for_a_rebalance_as_long_as_for_a_heartbeat():
    handlers = GroupHandlers()

    handlers.send(join_group, 0, request(rebalance_timeout_ms=-1))

    (member,) = handlers.script.groups["g"].members.values()
    assert member.rebalance_timeout_ms == 10_000
