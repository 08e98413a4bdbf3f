"""FindCoordinator's answers by version and key type."""

from collections.abc import Generator
from typing import Any

import pytest

from broker.handlers.groups import find_coordinator
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord
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
def test_the_coordinator_of_a_transactional_id_is_the_leader_of_its_partition(version: int):
    handlers = GroupHandlers()

    early = ask(handlers, version, key_type=1)
    create_transaction_state(handlers, leader=1)
    answer = ask(handlers, version, key_type=1)

    assert (early.error_code, early.node_id, early.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert handlers.creator.asked_for == ["__transaction_state"]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "host", 9092)


def test_a_partition_without_a_leader_has_no_coordinator():
    handlers = GroupHandlers()
    create_transaction_state(handlers, leader=-1)

    assert ask(handlers, 6, key_type=1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def create_transaction_state(handlers: GroupHandlers, leader: int) -> None:
    topic_id = b"s" * 16
    partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=leader, leader_epoch=0)
    handlers.script.metadata.apply_committed([TopicRecord(name="__transaction_state", topic_id=topic_id), partition])


def test_share_groups_are_refused():
    assert ask(GroupHandlers(), 6, key_type=2).error_code == ErrorCode.INVALID_REQUEST


def test_every_key_is_answered():
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"])

    response = GroupHandlers().call(find_coordinator, 4, request)

    assert [(answer.key, answer.error_code) for answer in response.coordinators] == [("a", 0), ("b", 0)]


def test_many_keys_take_turns():
    """The hash of the longest key takes two milliseconds, so that 500 of them would hold the loop for a second."""
    request = FindCoordinatorRequest(coordinator_keys=[f"{number:05}" + "k" * 29_000 for number in range(20)])

    work = GroupHandlers().send(find_coordinator, 4, request)

    assert isinstance(work, Generator)
    assert len(list(work)) > len(request.coordinator_keys) / 2
