"""Committed offsets of groups, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, RefusedError


def group_ids(connection: Connection) -> list[str]:
    """All consumer groups that the brokers know, sorted."""
    listing = connection.result(connection.admin.list_consumer_groups(request_timeout=connection.timeout_s))
    return sorted(group.group_id for group in listing.valid)


def committed(
    connection: Connection, groups: Iterable[str], partitions: Iterable[Partition] | None = None
) -> dict[str, dict[Partition, int] | CommandError]:
    """By group the committed offset of each partition that has one, or why it is not told. `partitions`: None for all."""
    found = committed_with_epochs(connection, groups, partitions)
    return {
        group: told if isinstance(told, CommandError) else {partition: each.offset for partition, each in told.items()}
        for group, told in found.items()
    }


class Committed(NamedTuple):
    """`leader_epoch` is None where the one who committed said none."""

    offset: int
    leader_epoch: int | None


def committed_with_epochs(
    connection: Connection, groups: Iterable[str], partitions: Iterable[Partition] | None = None
) -> dict[str, dict[Partition, Committed] | CommandError]:
    """As `committed`, with the leader's epoch of the record before the offset."""
    asked = None if partitions is None else [TopicPartition(*each) for each in partitions]
    futures: dict[str, Any] = {}
    for group in groups:
        request = ConsumerGroupTopicPartitions(group, asked)
        futures |= connection.admin.list_consumer_group_offsets([request], request_timeout=connection.timeout_s)
    return {group: found if isinstance(found, CommandError) else _offsets(found) for group, found in connection.attempts(futures).items()}


def _offsets(found: ConsumerGroupTopicPartitions) -> dict[Partition, Committed]:
    return {
        (each.topic, each.partition): Committed(each.offset, each.leader_epoch)
        for each in found.topic_partitions or ()
        if each.error is None and each.offset >= 0
    }


def alter_offsets(connection: Connection, group: str, new: Mapping[Partition, int]) -> None:
    """Commit these for a group. Raises RefusedError that names the partitions whose offsets are not set."""
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(*each, offset) for each, offset in new.items()])
    answers = connection.results(connection.admin.alter_consumer_group_offsets([request], request_timeout=connection.timeout_s))
    refused = [each for answer in answers.values() for each in answer.topic_partitions if each.error is not None]
    if refused:
        raise RefusedError("; ".join(f"{each.topic}-{each.partition}: {each.error.str()}" for each in refused))


def lag_of(end_offset: int | None, offset: int | None) -> int | None:
    """Records that are not read yet; None if one of both is not known."""
    return None if end_offset is None or offset is None else max(end_offset - offset, 0)


def groups_of_topic(connection: Connection, topic: str, ends: Mapping[int, int | None]) -> list[dict[str, Any]]:
    """The groups with committed offsets of the topic: how many of its partitions, and their lag."""
    rows = []
    for group, offsets in committed(connection, group_ids(connection), [(topic, index) for index in ends]).items():
        if isinstance(offsets, CommandError) or not offsets:
            continue
        lag = total_lag(offsets, {(topic, index): end for index, end in ends.items()})
        rows.append({"group": group, "partitions": len(offsets), "lag": lag})
    return rows


def latest() -> OffsetSpec:
    """The high watermark."""
    spec: OffsetSpec = OffsetSpec.latest()
    return spec


def total_lag(offsets: Mapping[Partition, int], ends: Mapping[Partition, int | None]) -> int | None:
    """Over all partitions; None if the end of one is not known."""
    lags = [lag_of(ends[each], offset) for each, offset in offsets.items()]
    return None if None in lags else sum(lag or 0 for lag in lags)
