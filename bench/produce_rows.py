"""Produce: one record a request in lock-step and pipelined, and librdkafka at full speed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bench.session import MeasurementError, Outcome, Session, client_note

LOCK_STEP_REQUESTS = 30_000
PIPELINED_REQUESTS = 150_000
PIPELINED_WINDOW = 64
LARGE_SIZE, LARGE_RECORDS = 1_000, 2_000_000
SMALL_SIZE, SMALL_RECORDS = 100, 8_000_000
WARMUP_REQUESTS = 3_000
PARTITIONS = 6


def lock_step(session: Session) -> Outcome:
    return lock_step_with(session)


def lock_step_one_core(session: Session) -> Outcome:
    """Lock-step with broker and client on one core: without the cost of waking the other core, which may be most of the time.

    The small exchange without a broker is measured on one core too."""
    with _on_one_core(session):
        outcome = lock_step(session)
        echo = session.client("raw_echo", "--file", str(session.directory / "raw-echo.bin"))
    return Outcome({**outcome.values, **echo}, outcome.notes)


def lock_step_idempotent(session: Session) -> Outcome:
    return lock_step_with(session, "--idempotence")


def lock_step_10_partitions(session: Session) -> Outcome:
    return lock_step_with(session, "--partitions", "10", partitions=10)


def lock_step_100_partitions(session: Session) -> Outcome:
    return lock_step_with(session, "--partitions", "100", partitions=100, requests=LOCK_STEP_REQUESTS // 10)


def lock_step_with(session: Session, *options: str, partitions: int = 1, requests: int = LOCK_STEP_REQUESTS) -> Outcome:
    """One request in flight, acks=1: latency and broker CPU of one small produce."""
    result = _raw_produce(session, session.scaled(requests), "--in-flight", "1", *options, partitions=partitions)
    values = {"p50_us": result["p50_us"], "p99_us": result["p99_us"], "cpu_us": _cpu_us(result)}
    return Outcome(values, client_note(result))


def pipelined(session: Session) -> Outcome:
    """64 requests in flight on one connection, acks=1."""
    result = _raw_produce(session, session.scaled(PIPELINED_REQUESTS), "--in-flight", str(PIPELINED_WINDOW), partitions=1)
    return Outcome({"requests_per_s": result["requests_per_second"], "cpu_us": _cpu_us(result)}, client_note(result))


def librdkafka_1kb(session: Session) -> Outcome:
    return librdkafka_load(session, session.scaled(LARGE_RECORDS), LARGE_SIZE, partitions=1)


def librdkafka_1kb_6_partitions(session: Session) -> Outcome:
    return librdkafka_load(session, session.scaled(LARGE_RECORDS), LARGE_SIZE, partitions=PARTITIONS)


def librdkafka_100b(session: Session) -> Outcome:
    return librdkafka_load(session, session.scaled(SMALL_RECORDS), SMALL_SIZE, partitions=PARTITIONS)


def librdkafka_lz4(session: Session) -> Outcome:
    """A repeated pattern, as rdkafka_performance sends: the client compresses it cheaply, and the broker receives few bytes."""
    return librdkafka_load(
        session, session.scaled(LARGE_RECORDS), LARGE_SIZE, "--compression", "lz4", "--payload", "pattern", partitions=PARTITIONS
    )


def librdkafka_lz4_text(session: Session) -> Outcome:
    """Words of a vocabulary, which lz4 halves: the client's only broker thread spends its time on compression."""
    return librdkafka_load(session, session.scaled(LARGE_RECORDS // 2), LARGE_SIZE, "--compression", "lz4", partitions=PARTITIONS)


def librdkafka_load(session: Session, records: int, size: int, *options: str, partitions: int) -> Outcome:
    """linger 5 ms, acks=all; every record's delivery is counted, and the end offsets must agree."""
    with session.topic(partitions) as topic:
        result = session.librdkafka("produce", topic, records, size, *options)
        _check_count(session, topic, partitions, records + 1)
    values = {
        "mb_per_s": result["megabytes_per_second"],
        "records_per_s": result["records_per_second"],
        "cpu_s_per_gb": 1000 * result["broker_cpu_seconds"] / result["megabytes"],
    }
    return Outcome(values, client_note(result))


def _raw_produce(session: Session, requests: int, *options: str, partitions: int) -> dict[str, Any]:
    warmup = min(WARMUP_REQUESTS, requests)
    with session.topic(partitions) as topic:
        result = session.client("raw_produce", "--topic", topic, "--requests", str(requests), "--warmup", str(warmup), *options)
        _check_count(session, topic, partitions, (requests + warmup) * partitions)
    return result


@contextmanager
def _on_one_core(session: Session) -> Iterator[None]:
    """All threads of the broker, and the clients that are started meanwhile."""
    allowed = os.sched_getaffinity(0)
    threads = [int(thread) for thread in os.listdir(f"/proc/{session.server.pid}/task")]
    core = {min(allowed)}
    try:
        for thread in (0, *threads):
            os.sched_setaffinity(thread, core)
        yield
    finally:
        for thread in (0, *threads):
            with suppress(ProcessLookupError):  # a thread of the broker's pool that has ended
                os.sched_setaffinity(thread, allowed)


def _check_count(session: Session, topic: str, partitions: int, expected_count: int) -> None:
    """Check the load: each acknowledged record is in the log, once."""
    count = session.end_offsets(topic, partitions)
    if count != expected_count:
        raise MeasurementError(f"{expected_count} records were acknowledged, the log has {count}")


def _cpu_us(result: dict[str, Any]) -> float:
    return 1e6 * float(result["broker_cpu_seconds"]) / int(result["requests"])
