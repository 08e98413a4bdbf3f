"""What several commands ask a cluster: offsets of partitions, sizes on disk, settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, RefusedError, check
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest

Partition = tuple[str, int]
INTERNAL = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
SOURCES = {
    1: "topic", 2: "broker", 3: "all brokers", 4: "server.properties", 5: "default", 7: "client metrics", 8: "group", 6: "logger",
}  # fmt: skip
"""ConfigSource's codes (KIP-226 and later) in a word or two."""
DEFAULT_SOURCE = 5


def topics_of(connection: Connection) -> dict[str, Any]:
    """All topics by name, as librdkafka describes them."""
    return dict(connection.metadata().topics)


def get_topics(connection: Connection, names: Iterable[str]) -> dict[str, Any]:
    """These topics. Raises RefusedError if one is not there."""
    topics = topics_of(connection)
    missing = [name for name in names if name not in topics]
    if missing:
        raise RefusedError(f"there is no topic {', '.join(missing)}; barnabas topic list has those that are there")
    return {name: topics[name] for name in names}


def partitions_of(topics: Mapping[str, Any]) -> list[Partition]:
    return [(name, index) for name, topic in topics.items() for index in sorted(topic.partitions)]


def offsets(
    connection: Connection,
    partitions: Iterable[Partition],
    spec: OffsetSpec,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[Partition, int | None]:
    """The offset of each partition by `spec`; None if it has no leader, or no record at or after that time. With READ_COMMITTED the end is
    the last stable offset."""
    asked = {TopicPartition(*each): spec for each in partitions}
    if not asked:
        return {}
    futures = connection.admin.list_offsets(asked, isolation_level=isolation, request_timeout=connection.timeout_s)
    answers = connection.attempts({(each.topic, each.partition): future for each, future in futures.items()})
    return {each: None if isinstance(found, CommandError) or found.offset < 0 else found.offset for each, found in answers.items()}


def starts_and_ends(connection: Connection, partitions: Iterable[Partition]) -> dict[Partition, tuple[int | None, int | None]]:
    """The log start offset and the high watermark."""
    asked = list(partitions)
    starts, ends = offsets(connection, asked, OffsetSpec.earliest()), offsets(connection, asked, OffsetSpec.latest())
    return {each: (starts[each], ends[each]) for each in asked}


def records_between(bounds: Iterable[tuple[int | None, int | None]]) -> int | None:
    """By offsets: compaction and the markers of transactions leave fewer. None if a bound is not known."""
    count = 0
    for start, end in bounds:
        if start is None or end is None:
            return None
        count += end - start
    return count


def sizes(connection: Connection, broker_ids: Iterable[int]) -> dict[Partition, int] | None:
    """Bytes on the disks of these brokers, of all replicas; None if one does not say."""
    total: dict[Partition, int] = defaultdict(int)
    for broker_id in broker_ids:
        try:
            found = log_dirs(connection, broker_id)
        except (OSError, CommandError):
            return None
        for each, size_bytes in _partition_sizes(found):
            total[each] += size_bytes
    return total


def replica_sizes(connection: Connection, broker_ids: Iterable[int]) -> dict[tuple[Partition, int], int]:
    """Bytes on disk of each replica, by its broker; without those of brokers that do not say."""
    found: dict[tuple[Partition, int], int] = {}
    for broker_id in broker_ids:
        try:
            found |= {(each, broker_id): size_bytes for each, size_bytes in _partition_sizes(log_dirs(connection, broker_id))}
        except (OSError, CommandError):
            continue
    return found


def log_dirs(connection: Connection, broker_id: int) -> Any:
    """The log directories of a broker, as DescribeLogDirs answers. Raises RefusedError, OSError."""
    answer = connection.wire(broker_id).request(DescribeLogDirsRequest(topics=None))
    check(answer.error_code, of=f"broker {broker_id}")
    return answer.results


def _partition_sizes(directories: Iterable[Any]) -> Iterator[tuple[Partition, int]]:
    """Without replicas that are on their way to another directory of the same broker."""
    for directory in directories:
        for topic in directory.topics:
            for each in topic.partitions:
                if not each.is_future_key:
                    yield (topic.name, each.partition_index), each.partition_size


def configs(connection: Connection, kind: ResourceType, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of each resource by name, as librdkafka describes them. Raises RefusedError."""
    futures = connection.admin.describe_configs([ConfigResource(kind, name) for name in names], request_timeout=connection.timeout_s)
    return {str(resource.name): entries for resource, entries in connection.results(futures).items()}


def setting(entry: Any) -> dict[str, Any]:
    """One setting as data."""
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": SOURCES.get(int(entry.source), str(entry.source)),
        "is_sensitive": bool(entry.is_sensitive),
        "is_read_only": bool(entry.is_read_only),
    }


def is_default(entry: Any) -> bool:
    return int(entry.source) == DEFAULT_SOURCE
