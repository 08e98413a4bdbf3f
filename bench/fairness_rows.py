"""The effect of one greedy client on the latency of others: 1,000 records/s on a connection of its own, alone and beside that client.

Clients share two cores and one disk with the broker. So the same load also runs against another broker of the same kind: the latency that
it adds there comes from the machine, and what it adds beyond that comes from sharing one broker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.consume_rows import RECORD_SIZE, drop_from_page_cache
from bench.session import Outcome, Session

RATE = 1_000  # records per second
REQUESTS = 8_000
WARMUP = 1_000
GREEDY_REQUESTS = 100_000_000  # more than it can send: the row ends it
COLD_RECORDS = 4_000_000

Neighbour = Callable[[Session], "Iterator[None]"]


def beside_pipelining(session: Session) -> Outcome:
    """One connection that keeps 64 small produce requests in flight without end."""
    return _compare(session, lambda session: _pipelining(session, in_flight=64))


def beside_flood(session: Session) -> Outcome:
    """The same with 5,000 in flight: its socket's buffer is never empty."""
    return _compare(session, lambda session: _pipelining(session, in_flight=5_000))


def beside_cold_read(session: Session) -> Outcome:
    """One consumer that reads 4 GB that were dropped from the page cache."""
    return _compare(session, _cold_read)


def beside_recompression(session: Session) -> Outcome:
    """A producer of large lz4 batches to a topic with `compression.type=zstd`, whose batches the broker compresses again."""
    return _compare(session, _recompression)


def _compare(session: Session, neighbour: Neighbour) -> Outcome:
    alone = _latency(session)
    with session.fresh() as other, contextmanager(neighbour)(other):
        elsewhere = _latency(session)
    with contextmanager(neighbour)(session):
        beside = _latency(session)
    return Outcome(
        {
            "alone_p99_us": alone["p99_us"],
            "elsewhere_p99_us": elsewhere["p99_us"],
            "beside_p99_us": beside["p99_us"],
            "added_p99_us": beside["p99_us"] - alone["p99_us"],
            "shared_p99_us": beside["p99_us"] - elsewhere["p99_us"],
            "added_p50_us": beside["p50_us"] - alone["p50_us"],
        }
    )


def _latency(session: Session) -> dict[str, Any]:
    requests = str(session.scaled(REQUESTS))
    with session.topic() as topic:
        return session.client("open_loop", "--topic", topic, "--rate", str(RATE), "--requests", requests, "--warmup", str(WARMUP))


def _pipelining(session: Session, *, in_flight: int) -> Iterator[None]:
    with session.topic() as topic:
        options = ["--in-flight", str(in_flight), "--requests", str(GREEDY_REQUESTS), "--warmup", "0"]
        client = session.start_client("raw_produce", "--topic", topic, *options)
        try:
            yield
        finally:
            _end(client)


def _recompression(session: Session) -> Iterator[None]:
    with session.topic(configs={"compression.type": "zstd", "retention.bytes": "1000000000"}) as topic:
        options = ["--records", str(GREEDY_REQUESTS), "--size", "1000", "--compression", "lz4"]
        client = session.start_client("librdkafka_load", "produce", "--topic", topic, *options)
        try:
            yield
        finally:
            _end(client)


def _cold_read(session: Session) -> Iterator[None]:
    records = session.scaled(COLD_RECORDS)
    topic = session.kept_topic(f"bench-cold-{records}", 1, records, RECORD_SIZE)
    drop_from_page_cache(session, topic)
    client = session.start_client("librdkafka_load", "consume", "--topic", topic, "--records", str(records), "--size", str(RECORD_SIZE))
    try:
        yield
    finally:
        _end(client)


def _end(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.communicate()
