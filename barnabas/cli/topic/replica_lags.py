"""How far the replicas of topics are behind their leaders, as each broker says itself (ListOffsets as a debugging replica)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

DEBUGGING_REPLICA_ID = -2
"""A follower answers it too, with its log's end."""
LATEST = -1


def replica_lags(connection: Connection, topics: Mapping[str, Any]) -> dict[Partition, list[int | None]]:
    """Records between the leader's log end and that of each replica, in the replicas' order; None where one of both does not say."""
    ends: dict[int, dict[Partition, int]] = {}
    partitions = {(name, index): partition for name, topic in topics.items() for index, partition in topic.partitions.items()}
    for broker_id in {replica for partition in partitions.values() for replica in partition.replicas}:
        ends[broker_id] = _log_ends(connection, broker_id, topics)
    lags: dict[Partition, list[int | None]] = {}
    for each, partition in partitions.items():
        leader_end = ends.get(partition.leader, {}).get(each)
        own_ends = [ends[replica].get(each) for replica in partition.replicas]
        # The leader is asked at another moment.
        lags[each] = [None if leader_end is None or end is None else max(leader_end - end, 0) for end in own_ends]
    return lags


def _log_ends(connection: Connection, broker_id: int, topics: Mapping[str, Any]) -> dict[Partition, int]:
    """Of the replicas on a broker; none if it does not answer."""
    asked = []
    for name, topic in topics.items():
        hosted = [index for index, partition in topic.partitions.items() if broker_id in partition.replicas]
        own = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in hosted]
        asked += [ListOffsetsTopic(name=name, partitions=own)] if own else []
    try:
        answer = connection.wire(broker_id).request(ListOffsetsRequest(replica_id=DEBUGGING_REPLICA_ID, topics=asked))
    except (CommandError, OSError):
        return {}
    return {
        (topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.offset >= 0
    }
