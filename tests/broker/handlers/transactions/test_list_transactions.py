"""ListTransactions over a real coordinator: each filter, and what a bad one is answered with."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.transactions import list_transactions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.broker.groups.harness import over_the_wire
from tests.broker.transactions.coordinator_room import Coordinator, three_ids
from tests.support.services import request_context, services
from tests.support.turns import finished, run

KEY = 66
COUNT = 2_000


def ask(coordinator: Coordinator, version: int = 2, **filters: Any) -> Any:
    handle = list_transactions.build(services(transaction_coordinator=coordinator.served))
    return handle(request_context(KEY, version), over_the_wire(ListTransactionsRequest(**filters), version))


def listed(coordinator: Coordinator, version: int = 2, **filters: Any) -> ListTransactionsResponse:
    response: ListTransactionsResponse = over_the_wire(finished(ask(coordinator, version, **filters)), version)
    return response


def ids(response: ListTransactionsResponse) -> str:
    return "".join(sorted(state.transactional_id for state in response.transaction_states))


@pytest.mark.parametrize("version", range(3))
def test_all_ids_are_listed_with_their_states(version: int) -> None:
    response = listed(three_ids(), version)

    found = {state.transactional_id: (state.producer_id, state.transaction_state) for state in response.transaction_states}
    assert found == {"a": (1000, "Ongoing"), "b": (1001, "CompleteCommit"), "c": (1002, "Empty")}
    assert (response.error_code, response.unknown_state_filters) == (0, [])


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"state_filters": ["Ongoing", "Empty"]}, "ac"),
        ({"producer_id_filters": [1001, 77]}, "b"),
        ({"duration_filter": -1}, "abc"),
        ({"duration_filter": 100}, "abc"),
        ({"duration_filter": 101}, "c"),  # an id without a transaction has lasted for ever, as in Kafka
        ({"transactional_id_pattern": "[ab]"}, "ab"),
        ({"transactional_id_pattern": ""}, "abc"),
        ({"transactional_id_pattern": "x?"}, ""),  # it is the whole id that has to match
        ({"state_filters": ["Ongoing"], "transactional_id_pattern": "b"}, ""),
    ],
)
def test_filters_let_through_what_all_of_them_do(filters: dict[str, Any], expected: str) -> None:
    coordinator = three_ids()
    coordinator.clock.advance(101)

    assert ids(listed(coordinator, **filters)) == expected


def test_unknown_states_are_told_and_let_nothing_through() -> None:
    response = listed(three_ids(), state_filters=["ongoing", "made-up", "made-up", "Dead"])

    assert (response.error_code, response.unknown_state_filters) == (0, ["ongoing", "made-up"])
    assert ids(response) == ""


@pytest.mark.parametrize("pattern", ["(", "a{1001}", r"(a)\1", "(?=a)"])
def test_a_pattern_that_is_none_of_re2_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        ask(three_ids(), transactional_id_pattern=pattern)

    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list_transactions.error_response(ListTransactionsRequest(), refused.value).error_code == refused.value.code


def test_nothing_is_listed_while_a_partition_is_loading() -> None:
    coordinator = three_ids()
    coordinator.metadata.apply_committed([coordinator.partition_record(leader_epoch=1)])

    with pytest.raises(KafkaError) as refused:
        ask(coordinator)

    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_many_ids_are_listed_in_turns_also_if_the_filters_let_none_through() -> None:
    coordinator = Coordinator()
    for number in range(COUNT):
        coordinator.init(f"t{number}")

    work = ask(coordinator, state_filters=["Ongoing"])

    assert isinstance(work, GeneratorType)
    response, pieces_count = run(work)
    assert response.transaction_states == []
    assert pieces_count >= COUNT - 500
