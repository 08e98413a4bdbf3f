"""The controller's decisions about log directories: which replica is in which directory, and which directories have failed (KIP-858).

Source: ReplicationControlManager (handleAssignReplicasToDirs, handleDirectoriesOffline).
"""

from __future__ import annotations

from typing import Any

from broker.controller.controller_result import ControllerResult, Steps
from broker.controller.elections import CHANGES_AT_ONCE, Elections, is_online
from broker.controller.partition_change import Election
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import BrokerImage, TopicImage
from protocol.errors import ErrorCode
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from protocol.messages.stored.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord


def assign_replicas(
    state: ClusterState, elections: Elections, broker: BrokerImage, request: AssignReplicasToDirsRequest
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """Record in which directories the broker has its replicas. For a replica in an offline directory, the broker loses the leadership
    and leaves the ISR."""
    records: list[Any] = []
    directories = []
    for directory in request.directories:
        topics = []
        for asked in directory.topics:
            topic = state.topics_by_id.get(asked.topic_id)
            results = []
            for each in asked.partitions:
                index = each.partition_index
                error = _assignment_error(topic, index, broker.node_id)
                if error is ErrorCode.NONE:
                    assert topic is not None
                    record = _assignment(elections, topic, index, broker, directory.id)
                    records += [] if record is None else [record]
                results.append(AssignReplicasToDirsResponsePartitionData(partition_index=index, error_code=error))
            topics.append(AssignReplicasToDirsResponseTopicData(topic_id=asked.topic_id, partitions=results))
        directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
    return ControllerResult(records, AssignReplicasToDirsResponse(directories=directories))


def _assignment_error(topic: TopicImage | None, index: int, node_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if node_id in topic.partitions[index].replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assignment(elections: Elections, topic: TopicImage, index: int, broker: BrokerImage, directory: bytes) -> PartitionChangeRecord | None:
    node_id = broker.node_id
    image = topic.partitions[index]
    if is_online(broker, directory):
        change = elections.change(topic, image)
    else:
        change = elections.change(topic, image, elections.acceptor(image, but_not=node_id))
        change.isr = [each for each in image.isr if each != node_id]
        if elections.allows_unclean(topic):
            change.election = Election.UNCLEAN
    change.directories[node_id] = directory
    return change.build(topic.topic_id, index)


def offline_steps(state: ClusterState, elections: Elections, broker: BrokerImage, offline: list[bytes]) -> Steps[None]:
    """Directories of the broker have failed: other brokers become leaders of the partitions in them."""
    node_id = broker.node_id
    yield from elections.prepare()
    partitions = elections.partitions.led_by(node_id) + elections.partitions.followed_by(node_id)
    keys = [key for key in partitions if key.directory_of(node_id) in offline]
    while len(keys) > CHANGES_AT_ONCE:
        piece, keys = keys[:CHANGES_AT_ONCE], keys[CHANGES_AT_ONCE:]
        yield elections.updates(piece, gone=node_id)
    last: list[Any] = list(elections.updates(keys, gone=node_id))
    now = state.brokers.get(node_id)
    if now is not None and now.epoch == broker.epoch:  # else it has registered again, without the failed directories
        left = [each for each in now.log_dirs if each not in offline]
        last.append(BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, log_dirs=left))
    yield last
