"""Transactions: producers that commit one after another, on one broker and on three, and how soon a READ_COMMITTED consumer has a record.

The whole of a transaction is from the send of its first batch to the answer to its commit; the commit is that request alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.row import Figure, Row, rate_figure
from bench.session import MeasurementError, Outcome, Session, client_note

PRODUCERS = (1, 10, 100)
RECORDS = (1, 100)
PARTITIONS = 6
SECONDS, WARMUP_S = 4.0, 1.0
END_TO_END_RATE = 50  # transactions per second; Apache Kafka commits some 45 to 150 of a single producer
END_TO_END_SECONDS = 8.0
MARKERS_TIMEOUT_S = 30.0
RETRIES_NOTED_SHARE = 0.01  # of the transactions


def transactions(producers: int, records: int) -> Callable[[Session], Outcome]:
    """The measurement of so many producers, with that many records of 100 bytes in each transaction."""

    def measure(session: Session) -> Outcome:
        result = _load(session, PARTITIONS, records, SECONDS, "--producers", str(producers))
        values = {
            "transactions_per_s": result["transactions_per_second"],
            **{key: result[key] for key in ("commit_p50_us", "commit_p99_us", "whole_p50_us", "whole_p99_us")},
            "cpu_us": 1e6 * result["broker_cpu_seconds"] / result["requests"],
        }
        return Outcome(values, client_note(result) + _retries_note(result))

    return measure


def end_to_end(session: Session) -> Outcome:
    """A producer on a schedule: from the time at which a transaction should begin to its record's arrival at a consumer."""
    result = _load(session, 1, 1, END_TO_END_SECONDS, "--rate", str(END_TO_END_RATE))
    values = {"p50_us": result["arrival_p50_us"], "p99_us": result["arrival_p99_us"]}
    return Outcome({**values, "cpu_us": 1e6 * result["broker_cpu_seconds"] / result["requests"]}, client_note(result))


def _load(session: Session, partitions: int, records: int, seconds: float, *options: str) -> dict[str, Any]:
    """Checks that each transaction is in the log, with its marker."""
    spans = ("--seconds", str(seconds * session.scale), "--warmup", str(WARMUP_S * session.scale))
    with session.topic(partitions) as topic:
        result = session.client("transactions", "--topic", topic, "--records", str(records), *spans, *options)
        expected_count = result["transactions"] * (records + 1)
        deadline = time.monotonic() + MARKERS_TIMEOUT_S
        while (count := session.end_offsets(topic, partitions)) != expected_count:  # a commit is answered before its markers are written
            if time.monotonic() > deadline:
                raise MeasurementError(f"{result['transactions']} transactions make {expected_count} offsets, the log has {count}")
            time.sleep(0.05)
    return result


def _retries_note(result: dict[str, Any]) -> tuple[str, ...]:
    share = result["retries"] / result["requests"]
    return (f"{share:.1%} of the transactions were told to try again",) if share >= RETRIES_NOTED_SHARE else ()


def _throughput_row(producers: int, records: int, *, is_cluster: bool) -> Row:
    return Row(
        f"{'cluster-' if is_cluster else ''}transactions-{producers}{'' if records == 1 else f'-of-{records}'}",
        f"{'three nodes: ' if is_cluster else ''}{producers} producers commit transactions of {records} × 100 B",
        transactions(producers, records),
        (
            rate_figure("transactions_per_s", "transactions", "/s", kafka=3 if producers == 1 else 1.5),
            Figure("whole_p50_us", "whole, p50", "µs", kafka_factor=0.5),
            Figure("whole_p99_us", "whole, p99", "µs"),
            Figure("commit_p50_us", "commit, p50", "µs", kafka_factor=1.0 if is_cluster else 0.7),
            Figure("commit_p99_us", "commit, p99", "µs"),
            Figure("cpu_us", "CPU per transaction", "µs"),
        ),
        is_core=True,
        runs_max=3,
        is_cluster=is_cluster,
    )


def _end_to_end_row(*, is_cluster: bool) -> Row:
    return Row(
        f"{'cluster-' if is_cluster else ''}transactions-end-to-end",
        f"{'three nodes: ' if is_cluster else ''}begin to READ_COMMITTED consumer, {END_TO_END_RATE} transactions/s",
        end_to_end,
        (Figure("p50_us", "p50", "µs"), Figure("p99_us", "p99", "µs"), Figure("cpu_us", "CPU per transaction", "µs")),
        is_core=True,
        runs_max=3,
        is_cluster=is_cluster,
    )


def rows(*, is_cluster: bool) -> tuple[Row, ...]:
    """All rows of one broker, or of three."""
    each = [_throughput_row(producers, records, is_cluster=is_cluster) for records in RECORDS for producers in PRODUCERS]
    return (*each, _end_to_end_row(is_cluster=is_cluster))
