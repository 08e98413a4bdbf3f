"""Consume: librdkafka reads from the page cache, from the disk, and at the end of a topic that is being produced."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from bench.session import Outcome, Session, client_note

RECORD_SIZE = 1_000
RECORDS = 3_000_000
COLD_RECORDS = 4_000_000
COLD_RECORDS_SHARED = 1_000_000  # read by each of twelve
TAIL_RECORDS = 1_000_000
TAIL_RECORDS_SHARED = 200_000  # read by each of twelve


def librdkafka_1kb(session: Session) -> Outcome:
    """One consumer, one partition, records of 1 KB from the beginning of a log in the page cache."""
    records = session.scaled(RECORDS)
    topic = session.kept_topic("bench-consume", 1, records, RECORD_SIZE)
    result = session.librdkafka("consume", topic, records, RECORD_SIZE)
    values = {
        "mb_per_s": result["megabytes_per_second"],
        "cpu_s_per_gb": 1000 * result["broker_cpu_seconds"] / result["megabytes"],
    }
    return Outcome(values, client_note(result))


def cold(consumers: int) -> Callable[[Session], Outcome]:
    """Consumers that read all of a log whose files were dropped from the page cache: 4 GB by one, 1 GB by each of twelve."""

    def measure(session: Session) -> Outcome:
        records = session.scaled(COLD_RECORDS if consumers == 1 else COLD_RECORDS_SHARED)
        topic = session.kept_topic(f"bench-cold-{records}", 1, records, RECORD_SIZE)
        drop_from_page_cache(session, topic)
        clients = [_start_consumer(session, topic, records) for _ in range(consumers)]
        return _together([session.wait_for_client(client) for client in clients])

    return measure


def tail(consumers: int) -> Callable[[Session], Outcome]:
    """Consumers that start before the first record. Each reads all records of one producer."""

    def measure(session: Session) -> Outcome:
        records = session.scaled(TAIL_RECORDS if consumers == 1 else TAIL_RECORDS_SHARED)
        with session.topic() as topic:
            clients = [_start_consumer(session, topic, records) for _ in range(consumers)]
            session.librdkafka("produce", topic, records, RECORD_SIZE)
            return _together([session.wait_for_client(client) for client in clients])

    return measure


def drop_from_page_cache(session: Session, topic: str) -> None:
    """Writes the topic's files to the disk and drops them from the page cache; index files, which are mapped, may stay."""
    for path in session.server.data_dir.glob(f"{topic}-*/*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _start_consumer(session: Session, topic: str, records: int) -> subprocess.Popen[str]:
    return session.start_client("librdkafka_load", "consume", "--topic", topic, "--records", str(records), "--size", str(RECORD_SIZE))


def _together(results: list[dict[str, float]]) -> Outcome:
    """All consumers' bytes over the longest span; the broker's CPU within it."""
    longest = max(results, key=lambda result: result["seconds"])
    megabytes = sum(result["megabytes"] for result in results)
    values = {
        "mb_per_s": megabytes / longest["seconds"],
        "slowest_mb_per_s": min(result["megabytes_per_second"] for result in results),
        "cpu_s_per_gb": 1000 * longest["broker_cpu_seconds"] / megabytes,
    }
    return Outcome(values, client_note(longest))
