"""LeaveGroup's answers by version."""

import pytest

from broker.handlers.groups import leave_group
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.groups.harness import GroupHandlers, versions
from tests.broker.groups.transcript import stable_group


@pytest.mark.parametrize("version", versions(13))
def test_member_leaves_once(version: int):
    handlers = GroupHandlers(stable_group("a"))
    member_id = handlers.script.member_ids["a"]

    def leave() -> list[int]:
        members = [MemberIdentity(member_id=member_id)] if version >= 3 else []
        request = LeaveGroupRequest(group_id="g", member_id=member_id, members=members)
        response = handlers.call(leave_group, version, request)
        return [response.error_code, *(member.error_code for member in response.members)]

    assert set(leave()) == {ErrorCode.NONE}
    assert leave() == ([0, ErrorCode.UNKNOWN_MEMBER_ID] if version >= 3 else [ErrorCode.UNKNOWN_MEMBER_ID])


def test_unknown_group_has_only_unknown_members():
    request = LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="a"), MemberIdentity(group_instance_id="i")])

    response = GroupHandlers().call(leave_group, 5, request)

    assert response.error_code == ErrorCode.NONE
    assert [member.error_code for member in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_group_error_is_told():
    assert GroupHandlers().call(leave_group, 5, LeaveGroupRequest(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
