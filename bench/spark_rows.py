"""Spark's kafka sink and source, in batches, in one local session."""

from __future__ import annotations

from bench.session import Outcome, Session

ROWS = 2_000_000
PARTITIONS = 6


def batch(session: Session) -> Outcome:
    """Rows written and read per second, each after one run that warmed Spark. Spark and the broker share the cores."""
    with session.topic(PARTITIONS) as topic:
        return Outcome(session.client("spark_load", "--topic", topic, "--rows", str(session.scaled(ROWS))))
