"""DescribeGroups' answers by version and state."""

import pytest

from broker.handlers.groups import describe_groups
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.broker.groups.harness import GroupHandlers, versions
from tests.broker.groups.transcript import Transcript, stable_group


@pytest.mark.parametrize("version", versions(15))
def test_stable_group_shows_protocol_metadata_and_assignment(version: int):
    (group,) = GroupHandlers(stable_group("a")).call(describe_groups, version, DescribeGroupsRequest(groups=["g"])).groups

    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (0, "Stable", "consumer", "range")
    (member,) = group.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("a", "/127.0.0.1", b"A")
    assert member.member_metadata != b""


def test_group_in_the_join_phase_shows_its_members_only():
    script = stable_group("a", "b")
    script.join("a")

    (group,) = GroupHandlers(script).call(describe_groups, 5, DescribeGroupsRequest(groups=["g"])).groups

    assert (group.group_state, group.protocol_data, len(group.members)) == ("PreparingRebalance", "", 2)
    assert {member.member_metadata for member in group.members} == {b""}


@pytest.mark.parametrize("version", versions(15))
def test_unknown_group_is_dead(version: int):
    (group,) = GroupHandlers().call(describe_groups, version, DescribeGroupsRequest(groups=["none"])).groups

    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert group.error_message == ("Group none not found." if version >= 6 else None)


@pytest.mark.parametrize(("is_asked", "operations"), [(True, 3400), (False, -(2**31))])
def test_authorized_operations_are_told_when_asked_for(is_asked: bool, operations: int):
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=is_asked)

    (group,) = GroupHandlers(stable_group("a")).call(describe_groups, 6, request).groups

    assert group.authorized_operations == operations


def test_error_is_told_for_each_group():
    script = Transcript()
    script.coordinator.runtime.on_resigned(0)

    groups = GroupHandlers(script).call(describe_groups, 6, DescribeGroupsRequest(groups=["a", "b"])).groups

    assert [group.error_code for group in groups] == [ErrorCode.NOT_COORDINATOR] * 2
