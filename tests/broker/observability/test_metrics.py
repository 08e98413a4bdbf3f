"""Counting, quantiles and what a scraper reads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.observability import metrics as metrics_module
from broker.observability.metrics import VALUES_PER_TURN, GaugeSample, Metrics, MetricsSnapshot, Piecewise, RequestMetrics, quantile_ns
from broker.replication.fetcher.fetcher_control import ReplicaLag
from broker.server.gauges import Following, add_broker_gauges, add_cluster_gauges
from broker.server.metrics_http import REQUEST_HEAD_MAX_BYTES, MetricsServer, render
from protocol.errors import ErrorCode
from tests.broker.groups.transcript import Transcript, stable_group
from tests.broker.quorum.raft_world import World as RaftWorld
from tests.broker.replication.world import World, batch
from tests.support.clock import WALL_START_MS, ManualClock
from tests.support.doubles import stands_for
from tests.support.transactions import verified

LATE_MS = 360_000


def rendered(metrics: Metrics) -> dict[str, float]:
    lines = render(metrics.snapshot()).decode().splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@stands_for(Following)
class Lagging:
    """Replicas here that are 3 and 5 records behind; one more is not fetched."""

    failed_partitions_count = 1

    def replica_lags(self) -> list[ReplicaLag]:
        return [ReplicaLag("ReplicaFetcherThread-0-2", "t", index, lag) for index, lag in enumerate((3, 5))]


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_topic_counters_are_the_same_object_until_the_topic_is_forgotten() -> None:
    metrics = Metrics()
    metrics.topic("a").messages_in += 3

    assert metrics.topic("a").messages_in == 3

    metrics.forget_topic("a")

    assert metrics.topic("a").messages_in == 0


def test_sums_over_all_topics_keep_what_deleted_topics_counted() -> None:
    metrics = Metrics()
    metrics.topic("a").bytes_in += 10
    metrics.topic("b").bytes_in += 5

    metrics.forget_topic("a")

    assert metrics.snapshot().all_topics["bytes_in"] == 15


async def taken_in_turns(metrics: Metrics, on_turn: Callable[[], object]) -> MetricsSnapshot:
    """The snapshot; `on_turn` is called in each turn of the loop that it leaves to others."""
    taking = asyncio.ensure_future(metrics.snapshot_in_turns())
    while not taking.done():
        await asyncio.sleep(0)
        on_turn()
    return taking.result()


def test_loop_has_turns_while_very_many_values_are_copied() -> None:
    metrics = Metrics()
    count = 4 * VALUES_PER_TURN + 1
    copied = 0
    seen = [0]

    def each() -> Iterator[int]:
        nonlocal copied
        for number in range(count):
            copied += 1
            yield number

    metrics.add_gauge("sum", "", lambda: Piecewise(each(), sum))
    metrics.add_gauge("one_each", "", lambda: Piecewise(((str(number),), number) for number in each()), ("number",))
    metrics.add_collector(lambda: Piecewise(each(), lambda values: [GaugeSample("collected", "", (), (((), len(values)),))]))

    snapshot = asyncio.run(taken_in_turns(metrics, lambda: seen.append(copied)))

    assert max(after - before for before, after in itertools.pairwise(seen)) == VALUES_PER_TURN
    at_once = metrics.snapshot()
    assert snapshot.gauges == at_once.gauges and snapshot.collected == at_once.collected
    assert [len(each.values) for each in snapshot.gauges] == [1, count] and snapshot.gauges[0].values == (((), sum(range(count))),)


def test_sums_do_not_go_back_if_a_topic_is_deleted_during_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "VALUES_PER_TURN", 1)
    metrics = Metrics()
    for name in "abc":
        metrics.topic(name).bytes_in += 1

    def forget() -> None:
        metrics.forget_topic("b")
        metrics.forget_topic("c")

    snapshot = asyncio.run(taken_in_turns(metrics, forget))

    assert snapshot.all_topics["bytes_in"] == 3


def test_partitions_come_and_go_during_a_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "VALUES_PER_TURN", 1)
    world = World(tmp_path)
    metrics = metrics_of(world, stable_group("a"))
    for name in ("kept", "deleted"):
        world.create_topic(name, replicas=(1,))
    made: list[str] = []

    def change() -> None:
        world.create_topic(f"new-{len(made)}", replicas=(1,))
        if not made:
            world.delete_topic("deleted")
        made.append("")

    snapshot = asyncio.run(taken_in_turns(metrics, change))

    (sizes,) = (gauge.values for gauge in snapshot.gauges if gauge.name == "kafka_log_log_size")
    assert (("kept", "0"), 0) in sizes


def test_quantiles_are_within_an_eighth_of_the_truth() -> None:
    request = RequestMetrics()
    times_ns = [1000 * i for i in range(1, 1001)]

    for elapsed_ns in times_ns:
        request.record(elapsed_ns)

    for quantile in (0.5, 0.95, 0.99):
        assert abs(quantile_ns(request.buckets, quantile) / (1_000_000 * quantile) - 1) < 0.125


def test_times_outside_the_histogram_are_counted_at_its_ends() -> None:
    request = RequestMetrics()

    for elapsed_ns in (0, 1, 7, 8, 2**62):
        request.record(elapsed_ns)

    assert request.requests_count == sum(request.buckets) == 5
    assert quantile_ns([0] * 8, 0.5) == 0


def test_scrape_has_the_names_of_the_usual_jmx_exporter_rules() -> None:
    metrics = Metrics()
    metrics.topic("orders").messages_in += 7
    metrics.request("Produce", 9).record(2_000_000)
    metrics.request("Produce", 12).record(2_000_000)
    metrics.request_error(3, 3)
    metrics.connection_count("PLAINTEXT", 1)
    metrics.authentication("SASL_SSL", "failed_authentication")
    metrics.add_gauge("kafka_log_log_size", "bytes", lambda: [(("orders", "0"), 123)], ("topic", "partition"))
    metrics.add_gauge("kafka_server_replicamanager_partitioncount", "partitions", lambda: 6)

    values = rendered(metrics)

    assert values['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 7
    assert values["kafka_server_brokertopicmetrics_messagesin_total"] == 7
    assert values['kafka_network_requestmetrics_requests_total{request="Produce",version="9"}'] == 1
    assert values['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 2
    assert 1.7 < values['kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}'] < 2.3
    assert values['kafka_network_requestmetrics_errors_total{error="UNKNOWN_TOPIC_OR_PARTITION",request="Metadata"}'] == 1
    assert values['kafka_server_socketservermetrics_connection_count{listener="PLAINTEXT"}'] == 1
    assert values['kafka_server_socketservermetrics_failed_authentication_total{listener="SASL_SSL"}'] == 1
    assert values['kafka_log_log_size{partition="0",topic="orders"}'] == 123
    assert values["kafka_server_replicamanager_partitioncount"] == 6
    assert values["process_open_fds"] > 0


async def test_metrics_are_served_over_http_and_other_paths_are_not() -> None:
    metrics = Metrics()
    metrics.topic("t").bytes_out += 1
    server = MetricsServer(metrics, ManualClock())
    await server.start("127.0.0.1", 0)

    found = await exchange(server.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    missing = await exchange(server.port, b"GET /secret HTTP/1.1\r\n\r\n")
    refused = await exchange(server.port, b"POST /metrics HTTP/1.1\r\n\r\n")
    await server.close()

    assert found.startswith(b"HTTP/1.1 200 OK\r\n") and b'bytesout_total{topic="t"} 1.0' in found
    assert missing.startswith(b"HTTP/1.1 404 ")
    assert refused.startswith(b"HTTP/1.1 405 ")


async def test_whether_the_node_is_ready_is_told_by_status_and_line() -> None:
    why = ["this broker is fenced", ""]
    server = MetricsServer(Metrics(), ManualClock(), lambda: why.pop(0))
    await server.start("127.0.0.1", 0)

    answers = [await exchange(server.port, b"GET %s HTTP/1.1\r\n\r\n" % path) for path in (b"/ready", b"/ready", b"/health")]
    await server.close()

    assert answers[0].startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and answers[0].endswith(b"\r\n\r\nthis broker is fenced\n")
    assert answers[1].startswith(b"HTTP/1.1 200 OK\r\n") and answers[1].endswith(b"\r\n\r\nready\n")
    assert answers[2].startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_request_head_that_never_ends_closes_the_connection() -> None:
    """CVE-2026-67235 of RabbitMQ: a body without a bound."""
    server = MetricsServer(Metrics(), ManualClock())
    await server.start("127.0.0.1", 0)

    answer = await exchange(server.port, b"GET /" + b"x" * (2 * REQUEST_HEAD_MAX_BYTES))
    await server.close()

    assert answer == b""


def metrics_of(world: World, groups: Transcript) -> Metrics:
    """The gauges of this broker and of what coordinates these groups."""
    metrics = Metrics()
    add_broker_gauges(
        metrics,
        replica_manager=world.replica_manager,
        group_coordinator=groups.coordinator,
        metadata=world.metadata,
        following=Lagging(),
        clock=world.clock,
        late_transaction_ms=LATE_MS,
    )
    return metrics


def test_gauges_ask_the_broker_s_rooms_when_scraped(tmp_path: Path) -> None:
    world = World(tmp_path)
    script = stable_group("a")
    metrics = metrics_of(world, script)
    world.create_topic("t", replicas=(1, 2), isr=(1,))
    world.create_topic("gone", replicas=(2,), leader=-1)
    world.produce("t", batch(*"123456789"))
    for _ in range(4):
        world.fetch("t", 9, max_wait_ms=1000)

    values = rendered(metrics)
    assert values['kafka_log_log_logendoffset{partition="0",topic="t"}'] == 9
    assert values['kafka_log_log_size{partition="0",topic="t"}'] == world.partition("t").log.size_bytes
    assert values["kafka_server_replicamanager_underreplicatedpartitions"] == 1
    assert values['kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'] == 4
    assert values["kafka_coordinator_group_groupmetadatamanager_numgroupsstable"] == 1
    assert values['kafka_server_replicafetchermanager_maxlag{clientid="Replica"}'] == 5
    assert values['kafka_server_replicafetchermanager_failedpartitionscount{clientid="Replica"}'] == 1
    lag_labels = 'clientid="ReplicaFetcherThread-0-2",partition="0",topic="t"'
    assert values[f"kafka_server_fetcherlagmetrics_consumerlag{{{lag_labels}}}"] == 3


def test_partitions_with_a_late_transaction_are_counted_where_they_are_led(tmp_path: Path) -> None:
    world = World(tmp_path)
    metrics = metrics_of(world, stable_group("a"))
    world.create_topic("t", replicas=(1,))
    for producer_id, timestamp in ((7, WALL_START_MS), (8, WALL_START_MS - LATE_MS)):  # of the oldest one the time counts
        begin_transaction(world, producer_id, timestamp)
    world.clock.advance(LATE_MS)
    on_time = rendered(metrics)

    world.clock.advance(1)
    late = rendered(metrics)
    world.change_partition("t", leader=2)

    name = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert (on_time[name], late[name], rendered(metrics)[name]) == (0, 1, 0)
    assert late["kafka_server_replicamanager_produceridcount"] == 2


def begin_transaction(world: World, producer_id: int, timestamp: int) -> None:
    log = world.partition("t").log
    records = batch("x", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True, timestamp=timestamp)
    log.append_as_leader(records, leader_epoch=0, now_ms=timestamp, transaction=verified(log, records))


def test_changes_of_the_isr_are_counted_when_the_controller_has_answered(tmp_path: Path) -> None:
    world = World(tmp_path, replica_lag_time_max_ms=1_000)
    metrics = metrics_of(world, stable_group("a"))
    world.create_topic("t", replicas=(1, 2, 3), isr=(1, 2), min_insync_replicas="2")
    assert isr_values(metrics) == {"shrinks": 0, "expands": 0, "failed": 0, "at_min": 1, "under_min": 0}

    world.follower_fetch(3, "t", 0, epoch=0)
    world.proposals[-1].refuse(ErrorCode.UNKNOWN_SERVER_ERROR)  # sent again
    world.proposals[-1].accept()
    assert isr_values(metrics) == {"shrinks": 0, "expands": 1, "failed": 1, "at_min": 0, "under_min": 0}
    world.produce("t", batch("x"))
    world.clock.advance(2_000)
    world.shrink_isrs()
    world.proposals[-1].accept()

    assert isr_values(metrics) == {"shrinks": 1, "expands": 1, "failed": 1, "at_min": 0, "under_min": 1}


def test_a_change_of_the_isr_whose_commit_comes_before_its_answer_is_counted_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    counts = world.replica_manager.isr_counts
    world.create_topic("t", replicas=(1, 2, 3), isr=(1, 2))
    world.follower_fetch(3, "t", 0, epoch=0)

    world.change_partition("t", isr=[1, 2, 3])
    world.proposals[-1].accept()
    assert (counts.expands, counts.shrinks) == (1, 0)

    world.change_partition("t", isr=[1, 2])  # another node's decision

    assert (counts.expands, counts.shrinks, counts.failed_updates) == (1, 0, 0)


def isr_values(metrics: Metrics) -> dict[str, float]:
    values = rendered(metrics)
    prefix = "kafka_server_replicamanager"
    return {
        "shrinks": values[f"{prefix}_isrshrinks_total"],
        "expands": values[f"{prefix}_isrexpands_total"],
        "failed": values[f"{prefix}_failedisrupdates_total"],
        "at_min": values[f"{prefix}_atminisrpartitioncount"],
        "under_min": values[f"{prefix}_underminisrpartitioncount"],
    }


def test_cluster_and_quorum_are_told_by_each_node(tmp_path: Path) -> None:
    quorum = RaftWorld(1)
    rafts = [node.replica.raft for node in quorum.nodes.values() if node.replica is not None]
    assert quorum.run_until(60_000, stop=lambda: all(raft.leader_id >= 0 and raft.high_watermark for raft in rafts))
    leader = next(raft for raft in rafts if raft.is_leader)
    world = World(tmp_path)
    world.create_topic("before", replicas=(2,))
    world.change_partition("before", leader=1)
    all_metrics = [Metrics() for _ in rafts]
    for metrics, raft in zip(all_metrics, rafts, strict=True):
        add_cluster_gauges(metrics, metadata=world.metadata, raft=raft)

    world.create_topic("t", replicas=(1, 2))
    world.change_partition("t", leader=2)
    world.change_partition("t", leader=1, leader_recovery_state=1, isr=[1])
    world.create_topic("gone", replicas=(2,), leader=-1)
    world.register_broker(3, is_fenced=True)

    scraped = [rendered(metrics) for metrics in all_metrics]
    for values, raft in zip(scraped, rafts, strict=True):
        assert values["kafka_controller_kafkacontroller_activecontrollercount"] == (raft is leader)
        assert values["kafka_controller_kafkacontroller_offlinepartitionscount"] == 1
        assert values["kafka_controller_kafkacontroller_globalpartitioncount"] == 3
        assert values["kafka_controller_kafkacontroller_fencedbrokercount"] == 1
        assert values["kafka_controller_kafkacontroller_activebrokercount"] == 2
        assert values["kafka_controller_controllerstats_leaderelectionrateandtimems_count"] == 2
        assert values["kafka_controller_controllerstats_uncleanleaderelections_total"] == 1
        assert values["kafka_server_raftmetrics_current_leader"] == leader.leader_id
        assert values["kafka_server_raftmetrics_current_epoch"] == leader.epoch
        assert values["kafka_server_raftmetrics_log_end_offset"] == raft.log.end_offset
        assert values["kafka_server_raftmetrics_number_of_voters"] == 3
        state = "leader" if raft is leader else "follower"
        assert values[f'kafka_server_raftmetrics_current_state{{current_state="{state}"}}'] == 1
    leader_values = scraped[rafts.index(leader)]
    assert leader_values["kafka_server_raftmetrics_current_vote"] == leader.leader_id
    assert leader_values["kafka_server_raftmetrics_high_watermark"] == leader.high_watermark


def test_groups_that_are_still_loading_do_not_spoil_a_scrape(tmp_path: Path) -> None:
    world = World(tmp_path)
    script = stable_group("a")
    script.restart(is_loaded=False)
    metrics = metrics_of(world, script)

    assert rendered(metrics)["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 0
