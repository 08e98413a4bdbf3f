"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which a client detects a truncation (KIP-101, KIP-320).

Serves v2–v4.

Behaviour:
- Answers with the largest epoch not above the requested one, and its end offset; (-1, -1) if that is not known. The current leader epoch is
checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH); only the leader answers.
- TOPIC_AUTHORIZATION_FAILED without DESCRIBE on the topic, except for brokers, which have CLUSTER_ACTION on the cluster.

Version notes: v3 replica_id. v4 flexible.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.replication.replica_manager import ReplicaManager
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def build(services: Services) -> Handler:
    replica_manager = services.replica_manager

    def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Any:
        return at_once_or_in_turns(_answers(replica_manager, context.access, request))

    return handle


def _answers(replica_manager: ReplicaManager, access: Access, request: OffsetForLeaderEpochRequest) -> Work:
    topics = []
    is_broker = access.is_open or access.allows_on_cluster(AclOperation.CLUSTER_ACTION, is_logged=False)
    for topic in request.topics:
        refusal = ErrorCode.NONE if is_broker else access.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        result = OffsetForLeaderTopicResult(topic=topic.topic, partitions=[])
        topics.append(result)
        yield
        for asked in topic.partitions:
            if refusal:
                result.partitions.append(EpochEndOffset(partition=asked.partition, error_code=refusal))
            else:
                result.partitions.append(_answer(replica_manager, topic.topic, asked))
            yield
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(replica_manager: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replica_manager.get_partition(topic, asked.partition)
        end = partition.end_offset_for_epoch(asked.current_leader_epoch, asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
