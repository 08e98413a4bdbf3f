"""Scaling: the time per request must not grow with partitions, connections, segments or producer ids. Requests a second should grow with
processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

from bench.endurance_rows import DESCRIPTORS_SPARE, raise_descriptor_limit
from bench.session import MeasurementError, Outcome, Session, client_note
from tests.support.cluster import Cluster

COUNTS = (10, 100, 1_000, 10_000)
PROCESSES = (1, 2)
PROCESSES_CLIENTS = 2  # whatever the brokers' number
PIPELINED_REQUESTS, PIPELINED_WINDOW = 150_000, 64
REQUESTS = 20_000
WARMUP_REQUESTS = 3_000
SEGMENT_BYTES = 1024 * 1024  # the least that Apache Kafka 4 takes
SEGMENT_RECORD_SIZE = 1_000
DESCRIPTORS_PER_PARTITION = 1.9  # one for its log; Barnabas makes no more partitions than half of its descriptors
DESCRIPTORS_PER_CONNECTION = 1  # in the broker, and one in the client, which is another process
CONNECTION_LIMITS = {"barnabas.max.connections": "20000", "barnabas.max.connections.per.ip": "20000"}  # Apache Kafka has none


def partitions(count: int) -> Callable[[Session], Outcome]:
    """Lock-step produce to each of `count` partitions in turn."""

    def measure(session: Session) -> Outcome:
        raise_descriptor_limit(int(count * DESCRIPTORS_PER_PARTITION) + DESCRIPTORS_SPARE)
        with session.fresh() as fresh:
            fresh.create_topic("many", count)
            return _in_turn(fresh, "many", connections=1, partitions=count, warmup=max(count, WARMUP_REQUESTS))

    return measure


def connections(count: int) -> Callable[[Session], Outcome]:
    """Lock-step produce over each of `count` connections in turn, one request in flight among them all."""

    def measure(session: Session) -> Outcome:
        raise_descriptor_limit(count * DESCRIPTORS_PER_CONNECTION + DESCRIPTORS_SPARE)
        with session.fresh(CONNECTION_LIMITS) as fresh:
            fresh.create_topic("many", 1)
            return _in_turn(fresh, "many", connections=count, partitions=1, warmup=max(count, WARMUP_REQUESTS))

    return measure


def segments(count: int) -> Callable[[Session], Outcome]:
    """Lock-step produce to a log of `count` segments of 1 MiB."""

    def measure(session: Session) -> Outcome:
        with session.topic(1, {"segment.bytes": str(SEGMENT_BYTES)}) as topic:
            session.librdkafka("produce", topic, count * SEGMENT_BYTES // SEGMENT_RECORD_SIZE, SEGMENT_RECORD_SIZE)
            return _in_turn(session, topic, connections=1, partitions=1, warmup=WARMUP_REQUESTS)

    return measure


def producer_ids(count: int) -> Callable[[Session], Outcome]:
    """Lock-step idempotent produce to one partition by each of `count` producers in turn."""

    def measure(session: Session) -> Outcome:
        requests = session.scaled(REQUESTS)
        with session.topic() as topic:
            options = ["--requests", str(requests), "--warmup", str(max(count, WARMUP_REQUESTS))]
            options += ["--idempotence", "--producers", str(count)]
            return _outcome(session.client("raw_produce", "--topic", topic, *options))

    return measure


def processes(count: int) -> Callable[[Session], Outcome]:
    """Two clients with 64 requests in flight each, a partition of one replica for each, over the `count` brokers of a cluster."""

    def measure(session: Session) -> Outcome:
        directory = session.directory / "processes"
        try:
            with session.product.cluster(directory, count, session.settings) as cluster:
                results = _pipelined_at(session, cluster, [1 + index % count for index in range(PROCESSES_CLIENTS)])
        except AssertionError as e:
            raise MeasurementError(f"{count} brokers of {session.product.title}: {e}") from e
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return Outcome({"requests_per_s": sum(result["requests_per_second"] for result in results)}, client_note(results[0]))

    return measure


def _pipelined_at(session: Session, cluster: Cluster, node_ids: Iterable[int]) -> list[dict[str, float]]:
    """The clients' results. Each client has a topic that one of these brokers leads."""
    requests = session.scaled(PIPELINED_REQUESTS)
    options = ["--requests", str(requests), "--in-flight", str(PIPELINED_WINDOW), "--warmup", str(min(WARMUP_REQUESTS, requests))]
    topics = {f"led-{index}": node_id for index, node_id in enumerate(node_ids)}
    for topic, node_id in topics.items():
        cluster.create_topic(topic, assignment=[[node_id]])
    clients = [
        session.start_client("raw_produce", "--topic", topic, *options, server=cluster.nodes[node_id]) for topic, node_id in topics.items()
    ]
    try:
        return [session.wait_for_client(client) for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()


def _in_turn(session: Session, topic: str, *, connections: int, partitions: int, warmup: int) -> Outcome:
    """`warmup` requests reach every partition and connection before the clock starts."""
    options = ["--connections", str(connections), "--active", "1", "--partitions", str(partitions)]
    options += ["--requests", str(session.scaled(REQUESTS)), "--warmup", str(warmup)]
    return _outcome(session.client("many_producers", "--topic", topic, *options))


def _outcome(result: dict[str, float]) -> Outcome:
    values = {"p50_us": result["p50_us"], "p99_us": result["p99_us"], "cpu_us": 1e6 * result["broker_cpu_seconds"] / result["requests"]}
    return Outcome(values, client_note(result))
