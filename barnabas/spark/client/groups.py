"""The offsets of a group that has no members: a query's progress, as kafka-consumer-groups shows it.

Source: org.apache.kafka.clients.admin.Admin.alterConsumerGroupOffsets, listConsumerGroupOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ..errors import RefusedError
from .cluster import RETRIED, Cluster, CoordinatorKind, Place, describe
from .security import Security

GROUP_DEADLINE_S = 5.0
"""How long a commit is tried: a query waits meanwhile."""


class Committed(NamedTuple):
    """An offset of a group, which is that of the next record, and the text that was kept with it."""

    offset: int
    metadata: str = ""


def open_group_cluster(servers: str, security: Security) -> Cluster:
    """A cluster for a group's requests alone, which give up early."""
    return Cluster(servers, security, timeout_s=GROUP_DEADLINE_S, deadline_s=GROUP_DEADLINE_S)


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[Place, Committed]) -> None:
    """Keep them, all or some. Raises RefusedError, also if the group has members; BrokerError if it cannot be done in time; OSError."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), committed in sorted(offsets.items()):
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, partitions=[]))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=committed.offset, committed_metadata=committed.metadata
            )
        )
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
    answer = cluster.ask_coordinator(CoordinatorKind.GROUP, group, request, _commit_error, version=lambda _: None)
    if code := _commit_error(answer):
        raise RefusedError(f"the group {group} takes no offsets: {describe(code)}")


def fetch_offsets(cluster: Cluster, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
    """What the group has of these partitions. Raises as `commit_offsets`."""
    topics: dict[str, list[int]] = {}
    for name, partition in sorted(places):
        topics.setdefault(name, []).append(partition)
    asked = [OffsetFetchRequestTopic(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
    request = OffsetFetchRequest(group_id=group, topics=asked)
    answer = cluster.ask_coordinator(CoordinatorKind.GROUP, group, request, _fetch_error, version=lambda _: None)
    if code := _fetch_error(answer):
        raise RefusedError(f"the offsets of the group {group}: {describe(code)}")
    return {
        (topic.name, each.partition_index): Committed(each.committed_offset, each.metadata or "")
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def _commit_error(answer: Any) -> int:
    return _worst([each.error_code for topic in answer.topics for each in topic.partitions])


def _fetch_error(answer: Any) -> int:
    return _worst([answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)])


def _worst(codes: list[int]) -> int:
    """One that will stay before one that may pass."""
    failed = [code for code in codes if code]
    return next((code for code in failed if code not in RETRIED), failed[0] if failed else 0)
