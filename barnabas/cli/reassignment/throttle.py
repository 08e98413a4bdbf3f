"""How fast replicas are copied that a reassignment moves: rates of brokers, and the replicas of topics that they count for (KIP-73), as
kafka-reassign-partitions --throttle sets them and --verify removes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence

from barnabas.cli.config.resources import DELETE, SET, Change, alter
from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.reassignment.moves import Move
from barnabas.cli.reassignment.plan import Partition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATE = re.compile(r"(\d+)\s*(|k|M|G)i?B?(?:/s)?", re.IGNORECASE)
POWERS = {"": 0, "k": 1, "m": 2, "g": 3}


def parse_rate(text: str) -> int:
    """Bytes a second: 1000000, 10MB, 512k; powers of 1,000, or of 1,024 with an i. Raises NotUnderstoodError."""
    found = RATE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise NotUnderstoodError(f"--throttle {text}: it is bytes a second, as in 1000000 or 10MB")
    return int(found[1]) * int((1_024 if "i" in text.lower() else 1_000) ** POWERS[found[2].lower()])


def throttle(connection: Connection, moves: Mapping[Partition, Move], rate: int, alive: Container[int]) -> None:
    """For these moves, which are all of their topics: the setting of a topic is replaced. Brokers that are not alive copy nothing, and are
    left out. Raises RefusedError."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    for (topic, index), move in moves.items():
        leaders[topic] += [f"{index}:{broker}" for broker in move.replicas if broker not in move.adding]
        followers[topic] += [f"{index}:{broker}" for broker in move.adding]
    for topic in leaders:
        values = zip(REPLICAS, (leaders[topic], followers[topic]), strict=True)
        alter(connection, "topic", topic, [Change(name, SET, ",".join(value)) for name, value in values if value], dry_run=False)
    for broker in sorted({broker for move in moves.values() for broker in move.replicas if broker in alive}):
        alter(connection, "broker", str(broker), [Change(name, SET, str(rate)) for name in RATES], dry_run=False)


def release(connection: Connection, topics: Iterable[str], brokers: Sequence[int]) -> None:
    """Remove the throttles of these, also those that something else has set, as Kafka's tool does. Raises RefusedError."""
    for topic in topics:
        alter(connection, "topic", topic, [Change(name, DELETE) for name in REPLICAS], dry_run=False)
    for broker in brokers:
        alter(connection, "broker", str(broker), [Change(name, DELETE) for name in (*RATES, DIRECTORY_RATE)], dry_run=False)
