"""Consume: librdkafka reading what the page cache holds."""

from __future__ import annotations

from bench.session import Outcome, Session, client_note

RECORD_SIZE = 1_000
RECORDS = 3_000_000


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
