"""The metadata quorum: who leads it, its voters and observers, as its leader tells."""

from __future__ import annotations

from typing import Any

from barnabas.cli.connection import Connection
from barnabas.cli.errors import check
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from protocol.uuids import ZERO_UUID, uuid_to_text

METADATA_LOG = "__cluster_metadata"


def describe_quorum(connection: Connection) -> DescribeQuorumResponse:
    """Of its one partition. Raises RefusedError."""
    asked = [DescribeQuorumRequestTopicData(topic_name=METADATA_LOG, partitions=[DescribeQuorumRequestPartitionData()])]
    answer: DescribeQuorumResponse = connection.wire().request(DescribeQuorumRequest(topics=asked))
    check(answer.error_code, answer.error_message)
    (partition,) = answer.topics[0].partitions
    check(partition.error_code, partition.error_message)
    return answer


def quorum_facts(connection: Connection) -> dict[str, Any]:
    """Raises RefusedError."""
    answer = describe_quorum(connection)
    (quorum,) = answer.topics[0].partitions
    endpoints = {node.node_id: [f"{each.name}://{each.host}:{each.port}" for each in node.listeners] for node in answer.nodes}
    end = max((each.log_end_offset for each in quorum.current_voters), default=0)
    replicas = [("voter", each) for each in quorum.current_voters] + [("observer", each) for each in quorum.observers]
    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [
            {
                "id": each.replica_id,
                "role": "leader" if each.replica_id == quorum.leader_id and role == "voter" else role,
                "directory_id": None if each.replica_directory_id == ZERO_UUID else uuid_to_text(each.replica_directory_id),
                "log_end_offset": None if each.log_end_offset < 0 else each.log_end_offset,
                "lag": None if each.log_end_offset < 0 else end - each.log_end_offset,
                "last_caught_up": None if each.last_caught_up_timestamp < 0 else each.last_caught_up_timestamp,
                "endpoints": endpoints.get(each.replica_id, []),
            }
            for role, each in replicas
        ],
    }
