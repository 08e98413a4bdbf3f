"""TLS: the rows of produce, consume and lock-step on a TLS listener, and new connections. Keys are of P-256, TLS 1.3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.produce_rows import LARGE_RECORDS, LARGE_SIZE, LOCK_STEP_REQUESTS
from bench.session import Outcome, Session, client_note
from tests.support.ports import HOST, free_ports
from tests.support.secured import FILES

CONNECTIONS = 2_000
CONSUMED_RECORDS = 1_000_000

# Before the measurement, whatever the scale: the broker is new, and Java has to become hot.
WARM_RECORDS, WARM_READS, WARM_REQUESTS, WARM_CONNECTIONS = 1_500_000, 4, 60_000, 3_000


@contextmanager
def _secured(session: Session) -> Iterator[tuple[Session, tuple[str, ...]]]:
    """A new broker with a listener more, and the options by which clients take it."""
    keys = session.directory / "tls.pem"
    keys.write_text((FILES / "server.key").read_text() + (FILES / "server.pem").read_text())
    plain, tls, controller = free_ports(3)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
    }
    with session.fresh(settings, port=plain) as fresh:
        yield fresh, ("--tls-port", str(tls), "--ca", str(FILES / "ca.pem"))


def on_tls(measure: Callable[[Session, tuple[str, ...]], Outcome]) -> Callable[[Session], Outcome]:
    def row(session: Session) -> Outcome:
        with _secured(session) as (fresh, options):
            return measure(fresh, options)

    return row


@on_tls
def produce_1kb(session: Session, options: tuple[str, ...]) -> Outcome:
    records = session.scaled(LARGE_RECORDS // 2)
    with session.topic() as topic:
        session.librdkafka("produce", topic, WARM_RECORDS, LARGE_SIZE, *options)
        result = session.librdkafka("produce", topic, records, LARGE_SIZE, *options)
    return _throughput(result)


@on_tls
def consume_1kb(session: Session, options: tuple[str, ...]) -> Outcome:
    records = CONSUMED_RECORDS
    topic = session.kept_topic("bench-consume", 1, records, LARGE_SIZE)
    for _ in range(WARM_READS):
        session.librdkafka("consume", topic, records, LARGE_SIZE, *options)
    return _throughput(session.librdkafka("consume", topic, records, LARGE_SIZE, *options))


@on_tls
def lock_step(session: Session, options: tuple[str, ...]) -> Outcome:
    requests = session.scaled(LOCK_STEP_REQUESTS)
    with session.topic() as topic:
        words = ("--topic", topic, "--requests", str(requests), "--warmup", str(WARM_REQUESTS), *options)
        result = session.client("raw_produce", *words)
    cpu_us = 1e6 * result["broker_cpu_seconds"] / requests
    return Outcome({"p50_us": result["p50_us"], "p99_us": result["p99_us"], "cpu_us": cpu_us}, client_note(result))


@on_tls
def connections(session: Session, options: tuple[str, ...]) -> Outcome:
    count = session.scaled(CONNECTIONS)
    words = ("--connections", str(count), "--warmup", str(WARM_CONNECTIONS))
    result = session.client("tls_connections", *words, *options)
    values = {"connections_per_s": count / result["seconds"], "cpu_ms": 1e3 * result["broker_cpu_seconds"] / count}
    return Outcome(values, client_note(result))


def _throughput(result: dict[str, float]) -> Outcome:
    values = {
        "mb_per_s": result["megabytes_per_second"],
        "cpu_s_per_gb": 1000 * result["broker_cpu_seconds"] / result["megabytes"],
    }
    return Outcome(values, client_note(result))
