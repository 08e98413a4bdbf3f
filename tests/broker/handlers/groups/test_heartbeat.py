"""Heartbeat's answers by version."""

import pytest

from broker.handlers.groups import heartbeat
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.groups.harness import GroupHandlers, versions
from tests.broker.groups.transcript import stable_group


@pytest.mark.parametrize("version", versions(12))
def test_member_is_told_that_all_is_well(version: int):
    handlers = GroupHandlers(stable_group("a"))
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=handlers.script.member_ids["a"])

    assert handlers.call(heartbeat, version, request).error_code == ErrorCode.NONE


def test_group_error_is_told():
    handlers = GroupHandlers()
    handlers.script.coordinator.runtime.on_resigned(0)

    assert handlers.call(heartbeat, 4, HeartbeatRequest(group_id="g")).error_code == ErrorCode.NOT_COORDINATOR
