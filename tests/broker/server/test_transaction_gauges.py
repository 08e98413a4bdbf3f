"""What a scrape tells of the transactions that a broker coordinates."""

from __future__ import annotations

from pathlib import Path

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.observability.metrics import Metrics
from broker.server.metrics_http import render
from broker.server.transaction_gauges import add_transaction_gauges
from protocol.errors import ErrorCode
from tests.broker.transactions.channels_room import ChannelsRoom
from tests.broker.transactions.coordinator_room import Coordinator, three_ids

MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
LOAD_TIME = "kafka_server_transaction_coordinator_metrics_partition_load_time"


def scraped(coordinator: Coordinator, room: ChannelsRoom) -> dict[str, float]:
    metrics = Metrics()
    add_transaction_gauges(metrics, coordinator.served, room.channels, coordinator.clock)
    lines = render(metrics.snapshot()).decode().splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def test_ids_are_told_by_state_and_the_age_of_the_oldest_transaction(tmp_path: Path) -> None:
    coordinator = three_ids()
    room = ChannelsRoom(tmp_path)
    coordinator.clock.advance(7_000)

    values = scraped(coordinator, room)

    assert values['barnabas_transactional_ids{state="Ongoing"}'] == 1
    assert values['barnabas_transactional_ids{state="CompleteCommit"}'] == 1
    assert values['barnabas_transactional_ids{state="PrepareAbort"}'] == 0
    assert values["barnabas_oldest_transaction_age_ms"] == 7_000
    assert scraped(Coordinator(), room)["barnabas_oldest_transaction_age_ms"] == 0


def test_markers_are_told_by_the_broker_that_has_to_write_them(tmp_path: Path) -> None:
    room = ChannelsRoom(tmp_path)
    room.topic("b", leader=2)
    room.topic("c", leader=3, partitions=2)
    room.topic("d", leader=-1)
    room.end("t", "b-0", "c-0", "c-1", "d-0")

    values = scraped(Coordinator(), room)

    assert values['barnabas_waiting_transaction_markers{broker="2"}'] == 1
    assert values['barnabas_waiting_transaction_markers{broker="3"}'] == 2
    assert values[f"{MARKERS}_unknowndestinationqueuesize"] == 1


def test_completions_that_are_tried_again_are_counted(tmp_path: Path) -> None:
    coordinator = three_ids()
    room = ChannelsRoom(tmp_path)
    coordinator.end("a", "1000:0")
    coordinator.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.markers.write_all()
    refused = scraped(coordinator, room)[f"{MARKERS}_logappendretryqueuesize"]

    coordinator.log.fail_with = None
    coordinator.clock.advance(RETRY_BACKOFF_MS)

    assert (refused, scraped(coordinator, room)[f"{MARKERS}_logappendretryqueuesize"]) == (1, 0)
    assert coordinator.served.describe("a").state == "CompleteCommit"


def test_the_time_of_a_load_is_told(tmp_path: Path) -> None:
    coordinator = three_ids()
    room = ChannelsRoom(tmp_path)
    coordinator.log.is_holding = True
    coordinator.init("d")  # what is not committed holds up the next load

    coordinator.metadata.apply_committed([coordinator.partition_record(leader_epoch=1)])
    coordinator.clock.advance(250)
    coordinator.log.commit()

    values = scraped(coordinator, room)
    assert (values[f"{LOAD_TIME}_max"], values[f"{LOAD_TIME}_avg"]) == (250, 125)  # it was loaded when it was made, in no time
