"""Spark's own kafka sink and source, and ours without a connector, in batches, each in one local session."""

from __future__ import annotations

from collections.abc import Callable

from bench.session import Outcome, Session

ROWS = 4_000_000
PARTITIONS = 4


def batch(data_source: str) -> Callable[[Session], Outcome]:
    """Rows written and read per second, each after one run that warmed Spark. Spark and the broker share the cores."""

    def measure(session: Session) -> Outcome:
        with session.topic(PARTITIONS) as topic:
            rows = str(session.scaled(ROWS))
            return Outcome(session.client("spark_load", "--format", data_source, "--topic", topic, "--rows", rows))

    return measure
