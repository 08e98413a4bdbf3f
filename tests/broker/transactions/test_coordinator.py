"""The coordinator over its shards: which shard, answers that come later, what is shown, and the sweeps."""

from __future__ import annotations

from typing import Any

import pytest

from broker.transactions.add_partitions import AddPartitions
from broker.transactions.coordinator import EXPIRY_CONTINUATION_MS
from broker.transactions.descriptions import states_of
from broker.transactions.end_transaction import EndTransaction
from broker.transactions.init_producer_id import InitProducerId
from broker.transactions.settings import TransactionSettings
from broker.transactions.shard import TOMBSTONE_BATCHES_IN_FLIGHT_MAX, TOMBSTONES_PER_BATCH
from broker.transactions.state import COMPLETE_COMMIT, EMPTY, ONGOING
from broker.transactions.transaction import ProducerIdAndEpoch
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import RemoveTopicRecord
from tests.broker.transactions.coordinator_room import TOPIC_ID, Coordinator, answered, three_ids
from tests.broker.transactions.room import TIMEOUT_MS

HOUR_MS = 60 * 60 * 1000


def code_of(ask: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        ask()
    return refused.value.code


def test_requests_go_to_the_shard_and_are_answered_at_the_commit():
    coordinator = Coordinator()
    coordinator.log.is_holding = True
    reply = coordinator.served.init_producer_id("t", InitProducerId(TIMEOUT_MS))
    assert not reply.is_done

    coordinator.log.commit()

    assert answered(reply) == "NONE 1000:0"
    assert coordinator.served.verify_partitions("t", ProducerIdAndEpoch(1000, 0), {"x": [0]}) == {"x": {0: ErrorCode.TRANSACTION_ABORTABLE}}


@pytest.mark.parametrize(
    "ask",
    [
        lambda served: served.init_producer_id("t", InitProducerId(1)),
        lambda served: served.add_partitions("t", AddPartitions(ProducerIdAndEpoch(1, 0), {}, 2), 0),
        lambda served: served.verify_partitions("t", ProducerIdAndEpoch(1, 0), {}),
        lambda served: served.end_transaction("t", EndTransaction(ProducerIdAndEpoch(1, 0), True, 2)),
        lambda served: served.describe("t"),
    ],
)
def test_request_for_an_id_of_another_coordinator_is_refused(ask: Any):
    coordinator = Coordinator(exists=False)

    assert code_of(lambda: ask(coordinator.served)) is ErrorCode.NOT_COORDINATOR


def test_stopped_coordinator_answers_what_waits_and_keeps_no_timer():
    coordinator = Coordinator()
    coordinator.log.is_holding = True
    reply = coordinator.served.init_producer_id("t", InitProducerId(TIMEOUT_MS))

    coordinator.served.stop()

    assert answered(reply) == "NOT_COORDINATOR"
    assert coordinator.clock.pending_timers == []
    assert code_of(lambda: coordinator.served.describe("t")) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# What is shown.


def test_all_ids_are_listed_as_far_as_they_are_committed():
    coordinator = three_ids()
    coordinator.log.is_holding = True
    coordinator.init("d")
    coordinator.end("a", "1000:0")

    assert sorted(coordinator.listed()) == ["a 1000 Ongoing", "b 1001 CompleteCommit", "c 1002 Empty"]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"states": {ONGOING, EMPTY}}, "ac"),
        ({"states": frozenset()}, ""),
        ({"producer_ids": {1001, 5}}, "b"),
        ({"duration_ms": 0}, "c"),  # an id without a transaction has lasted for ever, as in Kafka
        ({"matches": lambda transactional_id: transactional_id > "a"}, "bc"),
        ({"states": {COMPLETE_COMMIT}, "producer_ids": {1000}}, ""),
    ],
)
def test_filters_of_a_list_hold_together(wanted: Any, ids: str):
    listed = three_ids().listed(**wanted)

    assert "".join(sorted(line[0] for line in listed)) == ids


def test_duration_filters_transactions_that_began_longer_ago():
    coordinator = three_ids()

    coordinator.clock.advance(101)

    assert [len(coordinator.listed(duration_ms=duration_ms)) for duration_ms in (100, 101)] == [3, 1]


def test_states_of_a_filter_are_named_as_in_kafka():
    assert states_of([]) == (None, [])
    assert states_of(["Ongoing", "CompleteCommit"]) == ({ONGOING, COMPLETE_COMMIT}, [])
    assert states_of(["ongoing", "x", "x", "Dead", "PrepareEpochFence"]) == (frozenset(), ["ongoing", "x"])


def test_nothing_is_listed_while_a_partition_is_loading():
    coordinator = three_ids()

    coordinator.metadata.apply_committed([coordinator.partition_record(leader_epoch=1)])

    assert code_of(coordinator.listed) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_description_of_an_id():
    coordinator = three_ids()
    started_ms = coordinator.clock.now_ms()

    described = coordinator.served.describe("a")

    assert described == (1000, 0, "Ongoing", TIMEOUT_MS, started_ms, {"x": {0, 1}})
    assert coordinator.served.describe("c") == (1002, 0, "Empty", TIMEOUT_MS, -1, {})
    assert code_of(lambda: coordinator.served.describe("")) is ErrorCode.INVALID_REQUEST
    assert code_of(lambda: coordinator.served.describe("z")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_description_has_the_partitions_without_a_marker():
    coordinator = three_ids()
    coordinator.end("a", "1000:0")
    all_partitions = coordinator.served.describe("a").partitions

    coordinator.markers.unmarked_partitions = {"x": frozenset({1})}

    assert all_partitions == {"x": {0, 1}}
    assert coordinator.served.describe("a").partitions == {"x": {1}}


def test_ids_are_counted_by_state_and_the_oldest_open_transaction_is_known():
    coordinator = three_ids()
    oldest_ms = coordinator.clock.now_ms()
    coordinator.clock.advance(5)
    coordinator.add("c", "1002:0", "x-0")

    assert +coordinator.served.count_states() == {ONGOING: 2, COMPLETE_COMMIT: 1}
    assert coordinator.served.find_oldest_start_ms() == oldest_ms
    assert Coordinator().served.find_oldest_start_ms() is None


# What falls due.


def test_timed_out_transactions_are_aborted_with_the_next_sweep():
    coordinator = three_ids()

    coordinator.clock.advance(TIMEOUT_MS + coordinator.settings.abort_interval_ms)
    coordinator.markers.write_all()

    assert coordinator.served.describe("a").state == "CompleteAbort"
    assert coordinator.markers.sent[-1] == "a abort 1000:1 v2 epoch 0 x-0 x-1"


def test_ids_expire_with_the_next_sweep():
    coordinator = three_ids()

    coordinator.clock.advance(coordinator.settings.id_expiration_ms + coordinator.settings.expiration_interval_ms)
    coordinator.markers.write_all()

    assert coordinator.listed() == ["a 1000 CompleteAbort"]


def test_expiry_goes_on_soon_when_it_had_to_wait_for_commits():
    coordinator = Coordinator(id_expiration_ms=1)
    count = TOMBSTONES_PER_BATCH * TOMBSTONE_BATCHES_IN_FLIGHT_MAX + 1
    for number in range(count):
        coordinator.init(str(number))
    coordinator.log.is_holding = True
    coordinator.clock.advance(HOUR_MS)
    coordinator.log.commit()
    assert len(coordinator.listed()) == 1

    coordinator.clock.advance(EXPIRY_CONTINUATION_MS)
    coordinator.log.commit()

    assert coordinator.listed() == []


# The number of partitions.


def test_number_of_partitions_that_changes_leaves_ids_where_they_are_and_fails_loads(caplog: pytest.LogCaptureFixture):
    coordinator = three_ids()
    coordinator.log.partition_count = 50
    assert [coordinator.served.partition_for(each) for each in "abc"] == [0, 0, 0]
    assert coordinator.served.describe("a").state == "Ongoing"

    coordinator.apply(coordinator.partition_record(leader_epoch=1))

    assert code_of(lambda: coordinator.served.describe("a")) is ErrorCode.NOT_COORDINATOR
    assert "changed from 1 to 50" in caplog.text


def test_topic_that_was_deleted_may_come_back_with_another_number():
    coordinator = three_ids()

    coordinator.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    coordinator.log.partition_count = 50

    assert {coordinator.served.partition_for(str(number)) for number in range(1000)} == set(range(50))


def test_settings_are_those_of_the_server():
    assert TransactionSettings.from_server(ServerConfig()) == TransactionSettings()
