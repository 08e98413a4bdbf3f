"""SyncGroup's answers by version."""

import pytest

from broker.handlers.groups import sync_group
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.harness import GroupHandlers, versions
from tests.broker.groups.transcript import Transcript, stable_group


def request(handlers: GroupHandlers, **fields: object) -> SyncGroupRequest:
    defaults = {"group_id": "g", "generation_id": 1, "member_id": handlers.script.member_ids["a"]}
    return SyncGroupRequest(**(defaults | {"protocol_type": "consumer", "protocol_name": "range"} | fields))


@pytest.mark.parametrize("version", versions(14))
def test_member_of_a_stable_group_gets_its_assignment(version: int):
    handlers = GroupHandlers(stable_group("a"))

    response = handlers.call(sync_group, version, request(handlers))

    assert (response.error_code, response.assignment) == (0, b"A")
    assert response.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("fields", [{"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "sticky"}, {"protocol_type": "x"}])
def test_version_5_must_name_the_groups_protocol(fields: dict[str, object]):
    handlers = GroupHandlers(stable_group("a"))

    response = handlers.call(sync_group, 5, request(handlers, **fields))

    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def many_assignments(handlers: GroupHandlers) -> list[SyncGroupRequestAssignment]:
    member_id = handlers.script.member_ids["a"]
    others = [SyncGroupRequestAssignment(member_id=f"other{number}", assignment=b"O") for number in range(5_000)]
    mine = [SyncGroupRequestAssignment(member_id=member_id, assignment=value) for value in (b"first", b"last")]
    return [*others, *mine, *others]


def test_only_assignments_of_members_count():
    """Of several for one member the last counts."""
    script = Transcript()
    script.join("a")
    script.advance(0)
    handlers = GroupHandlers(script)

    answer = handlers.call(sync_group, 5, request(handlers, assignments=many_assignments(handlers)))

    assert answer.assignment == b"last"


def test_group_error_is_told():
    handlers = GroupHandlers(stable_group("a"))

    assert handlers.call(sync_group, 5, request(handlers, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
