"""FindCoordinator's answers by version and key type."""

from typing import Any

import pytest

from broker.handlers.groups import find_coordinator
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.groups.harness import GroupHandlers, versions


def ask(handlers: GroupHandlers, version: int, key_type: int = 0, **facts: Any) -> Any:
    """The answer for one key, in either form."""
    keys = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    response = handlers.call(find_coordinator, version, FindCoordinatorRequest(key_type=key_type, **keys), **facts)
    return response.coordinators[0] if version >= 4 else response


@pytest.mark.parametrize("version", versions(10))
def test_groups_coordinator_is_the_leader_of_its_partition(version: int):
    answer = ask(GroupHandlers(), version)

    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "host", 9092)


@pytest.mark.parametrize("version", versions(10))
def test_missing_topic_is_created_and_the_client_asked_to_retry(version: int):
    handlers = GroupHandlers()
    handlers.script.delete_topic("__consumer_offsets")

    answer = ask(handlers, version)

    assert (answer.error_code, answer.node_id, answer.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert handlers.creator.asked_for == ["__consumer_offsets"]


def test_coordinator_without_an_address_on_the_listener_is_not_available():
    assert ask(GroupHandlers(), 4, listener="OTHER").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_are_refused_with_a_reason(version: int):
    answer = ask(GroupHandlers(), version, key_type=1)

    assert (answer.error_code, answer.node_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert "transactions" in answer.error_message


def test_share_groups_are_refused():
    assert ask(GroupHandlers(), 6, key_type=2).error_code == ErrorCode.INVALID_REQUEST


def test_every_key_is_answered():
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"])

    response = GroupHandlers().call(find_coordinator, 4, request)

    assert [(answer.key, answer.error_code) for answer in response.coordinators] == [("a", 0), ("b", 0)]
