"""Idle connections, many partitions, recovery after kill -9, fsync before every response."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench.session import MeasurementError, Outcome, Session, client_note
from bench.usage import cpu_seconds, resident_megabytes

IDLE_CONNECTIONS = 2_000
MANY_PARTITIONS = 1_000
IDLE_SPAN_S = 5.0
SETTLE_S = 2.0
RECOVERY_RECORDS, RECOVERY_RECORD_SIZE, RECOVERY_PARTITIONS = 4_000_000, 1_000, 6
FLUSHED_REQUESTS = 2_000
FLUSHED_PARTITIONS = 6
DESCRIPTORS_SPARE = 500


def idle_connections(session: Session) -> Outcome:
    """Connections without requests: their memory and their idle CPU."""
    raise_descriptor_limit(IDLE_CONNECTIONS + DESCRIPTORS_SPARE)
    with session.fresh() as fresh, ExitStack() as stack:
        time.sleep(SETTLE_S)
        pid = fresh.server.pid
        before_mb = resident_megabytes(pid)
        for _ in range(IDLE_CONNECTIONS):
            stack.enter_context(socket.create_connection((fresh.server.host, fresh.server.port)))
        time.sleep(SETTLE_S)
        connected_mb = resident_megabytes(pid) - before_mb
        idle_share = idle_cpu_percent(pid)
    return Outcome({"kb_per_connection": 1000 * connected_mb / IDLE_CONNECTIONS, "idle_cpu_percent": idle_share})


def many_partitions(session: Session) -> Outcome:
    """A topic of 1,000 partitions with one small batch each: the time to create it, memory, idle CPU, starts after a stop and a kill."""
    raise_descriptor_limit(20_000)
    with session.fresh() as fresh:
        time.sleep(SETTLE_S)
        before_mb = resident_megabytes(fresh.server.pid)
        started = time.perf_counter()
        fresh.create_topic("many", MANY_PARTITIONS)
        create_s = time.perf_counter() - started
        fresh.client("raw_produce", "--topic", "many", "--partitions", str(MANY_PARTITIONS), "--requests", "3", "--warmup", "0")
        time.sleep(SETTLE_S)
        memory_mb = resident_megabytes(fresh.server.pid) - before_mb
        idle_share = idle_cpu_percent(fresh.server.pid)
        fresh.server.restart()
        clean_s = fresh.server.ready_after_s
        fresh.server.restart(hard=True)
        killed_s = fresh.server.ready_after_s
    return Outcome(
        {
            "create_s": create_s,
            "kb_per_partition": 1000 * memory_mb / MANY_PARTITIONS,
            "idle_cpu_percent": idle_share,
            "clean_start_s": clean_s,
            "recovery_s": killed_s,
        }
    )


def recovery(session: Session) -> Outcome:
    """kill -9 right after 4 GB were produced: the time of the next start, which reads it all, less a clean start, per GB."""
    records = session.scaled(RECOVERY_RECORDS)
    with session.fresh() as fresh:
        fresh.create_topic("load", RECOVERY_PARTITIONS)
        fresh.server.restart()
        clean_s = fresh.server.ready_after_s
        fresh.librdkafka("produce", "load", records, RECOVERY_RECORD_SIZE)
        fresh.server.restart(hard=True)
        recovery_s = fresh.server.ready_after_s
        count = fresh.end_offsets("load", RECOVERY_PARTITIONS)
        if count != records + 1:
            raise MeasurementError(f"{records + 1} records were acknowledged, {count} were recovered")
    gigabytes = records * RECOVERY_RECORD_SIZE / 1e9
    return Outcome({"recovery_s": recovery_s, "s_per_gb": (recovery_s - clean_s) / gigabytes})


def flushed(producers: int) -> Callable[[Session], Outcome]:
    """flush.messages=1: that many producers with one request in flight each. Every record is on the disk before its response."""

    def measure(session: Session) -> Outcome:
        requests = max(session.scaled(FLUSHED_REQUESTS), 2 * producers)
        options = ["--connections", str(producers), "--partitions", str(min(producers, FLUSHED_PARTITIONS)), "--requests", str(requests)]
        with session.topic(FLUSHED_PARTITIONS, {"flush.messages": "1"}) as topic:
            result = session.client("many_producers", "--topic", topic, "--warmup", "100", *options)
        values = {"requests_per_s": result["requests_per_second"], "p50_us": result["p50_us"], "p99_us": result["p99_us"]}
        return Outcome(values, client_note(result))

    return measure


def raise_descriptor_limit(count: int) -> None:
    """Raise this process's limit of descriptors, which brokers and clients started later inherit. MeasurementError if not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard if hard == resource.RLIM_INFINITY else max(hard, count)))
    except (ValueError, PermissionError) as e:
        raise MeasurementError(f"needs {count} open files, the limit is {hard}") from e


def idle_cpu_percent(*pids: int) -> float:
    """The idle CPU of these processes together, in percent of a core."""
    before = cpu_seconds(*pids)
    time.sleep(IDLE_SPAN_S)
    return 100 * (cpu_seconds(*pids) - before) / IDLE_SPAN_S
