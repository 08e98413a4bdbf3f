"""What the leaders of partitions know of the producers there (DescribeProducers, KIP-664)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from barnabas.cli.connection import Connection
from barnabas.cli.errors import RefusedError, check
from protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest

PARTITIONS_MAX = 500
"""Of one request, as Kafka's TransactionsCommand asks."""


def producer_states(
    connection: Connection, topics: Mapping[str, Any], chosen: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int, ProducerState]]:
    """The producers of these partitions of `topics`, which are the metadata's. Raises RefusedError, also for a partition without leader."""
    by_leader: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for topic, index in chosen:
        leader = topics[topic].partitions[index].leader
        if leader < 0:
            raise RefusedError(f"{topic}-{index} has no leader")
        by_leader[leader].append((topic, index))
    for leader, partitions in by_leader.items():
        for first in range(0, len(partitions), PARTITIONS_MAX):
            yield from _of_leader(connection, leader, partitions[first : first + PARTITIONS_MAX])


def _of_leader(connection: Connection, leader: int, partitions: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, ProducerState]]:
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        indexes[topic].append(index)
    asked = [TopicRequest(name=topic, partition_indexes=each) for topic, each in indexes.items()]
    for topic in connection.wire(leader).request(DescribeProducersRequest(topics=asked)).topics:
        for partition in topic.partitions:
            check(partition.error_code, partition.error_message, of=f"{topic.name}-{partition.partition_index}")
            yield from ((topic.name, partition.partition_index, each) for each in partition.active_producers)
