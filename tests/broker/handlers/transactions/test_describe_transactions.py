"""DescribeTransactions over a real coordinator: what is told of an id, and which error goes where."""

from __future__ import annotations

from types import GeneratorType

from broker.handlers.transactions import describe_transactions
from broker.network.answer_size import ANSWER_BYTES_MAX
from broker.transactions.state import TransactionState as State
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse, TransactionState
from tests.broker.groups.harness import over_the_wire
from tests.broker.transactions.coordinator_room import Coordinator, three_ids
from tests.broker.transactions.room import FIRST_PRODUCER_ID, TIMEOUT_MS
from tests.support.services import request_context, services
from tests.support.turns import finished, run

KEY = 65
COUNT = 1_000


def describe(coordinator: Coordinator, *transactional_ids: str) -> list[TransactionState]:
    handle = describe_transactions.build(services(transaction_coordinator=coordinator.served))
    outcome = finished(handle(request_context(KEY, 0), DescribeTransactionsRequest(transactional_ids=list(transactional_ids))))
    response: DescribeTransactionsResponse = over_the_wire(outcome, 0)
    assert [each.transactional_id for each in response.transaction_states] == list(transactional_ids)
    return response.transaction_states


def test_an_ongoing_transaction_is_told_with_its_partitions() -> None:
    coordinator = three_ids()
    coordinator.add("a", "1000:0", "y-2")

    (state,) = describe(coordinator, "a")

    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, State.ONGOING.label, TIMEOUT_MS)
    assert (state.producer_id, state.producer_epoch) == (FIRST_PRODUCER_ID, 0)
    assert state.transaction_start_time_ms == coordinator.clock.now_ms()
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("x", [0, 1]), ("y", [2])]


def test_what_a_transaction_that_ends_tells_is_its_partitions_without_a_marker() -> None:
    coordinator = three_ids()
    coordinator.end("a", "1000:0")
    coordinator.markers.unmarked_partitions = {"x": frozenset({1})}

    (state,) = describe(coordinator, "a")

    assert (state.transaction_state, state.producer_epoch) == ("PrepareCommit", 1)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("x", [1])]


def test_an_id_without_a_transaction_has_no_partitions() -> None:
    ended, empty = describe(three_ids(), "b", "c")

    assert (ended.transaction_state, empty.transaction_state) == ("CompleteCommit", "Empty")
    assert (ended.topics, empty.topics) == ([], [])
    assert ended.transaction_start_time_ms > empty.transaction_start_time_ms == -1


def test_each_id_has_its_own_error() -> None:
    states = describe(three_ids(), "a", "", "missing")

    assert [state.error_code for state in states] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]


def test_an_id_of_another_coordinator_is_refused() -> None:
    (state,) = describe(Coordinator(exists=False), "a")

    assert state.error_code == ErrorCode.NOT_COORDINATOR


def test_many_ids_are_described_in_turns_and_so_is_their_error() -> None:
    request = DescribeTransactionsRequest(transactional_ids=["a"] * COUNT)
    work = describe_transactions.build(services(transaction_coordinator=three_ids().served))(request_context(KEY, 0), request)
    assert isinstance(work, GeneratorType)

    response, pieces_count = run(work)
    failed = finished(describe_transactions.error_response(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))

    assert [state.error_code for state in response.transaction_states] == [0] * COUNT
    assert pieces_count >= COUNT // 2
    assert [state.error_code for state in failed.transaction_states] == [ErrorCode.UNKNOWN_SERVER_ERROR] * COUNT


def test_an_id_with_many_partitions_that_is_named_often_is_told_up_to_a_limit() -> None:
    coordinator = Coordinator()
    coordinator.init("t")
    coordinator.add("t", f"{FIRST_PRODUCER_ID}:0", *(f"x-{index}" for index in range(100_000)))

    states = describe(coordinator, *["t"] * 200)

    told = [state for state in states if not state.error_code]
    assert {state.error_code for state in states[len(told) :]} == {ErrorCode.POLICY_VIOLATION}
    assert ANSWER_BYTES_MAX * 0.9 < len(told) * 400_000 < ANSWER_BYTES_MAX
