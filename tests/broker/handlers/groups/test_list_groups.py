"""ListGroups' answers and filters."""

import pytest

from broker.handlers.groups import list_groups
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.groups.harness import GroupHandlers, versions
from tests.broker.groups.transcript import Transcript, stable_group


@pytest.mark.parametrize("version", versions(16))
def test_group_is_listed_with_what_the_version_shows(version: int):
    (group,) = GroupHandlers(stable_group("a")).call(list_groups, version, ListGroupsRequest()).groups

    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        (["stable"], [], True),
        ([" STABLE "], ["Classic"], True),
        (["Empty", "Dead"], [], False),
        (["made-up"], [], False),
        ([], ["consumer"], False),
        ([], ["made-up"], False),
        ([], ["consumer", "classic"], True),
    ],
)
def test_filters_name_states_and_types_in_any_case(states: list[str], types: list[str], is_listed: bool):
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    response = GroupHandlers(stable_group("a")).call(list_groups, 5, request)

    assert bool(response.groups) == is_listed


def test_simple_group_has_no_protocol_type():
    script = Transcript()
    script.commit(1)

    (group,) = GroupHandlers(script).call(list_groups, 5, ListGroupsRequest()).groups

    assert (group.protocol_type, group.group_state) == ("", "Empty")


def test_partial_list_is_not_given_out():
    script = Transcript()
    script.restart(is_loaded=False)

    assert GroupHandlers(script).call(list_groups, 5, ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
