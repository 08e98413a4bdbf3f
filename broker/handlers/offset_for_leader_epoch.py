"""OffsetForLeaderEpoch: where a leader epoch ended, so that a client can tell whether its log was truncated (KIP-101, KIP-320).

Serves v2–v4.

Behaviour: answers the largest epoch not above the one asked for and the offset where it ends; (-1, -1) when that is not known. The
current leader epoch is checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH); only the leader answers.

Version notes: v3 replica_id. v4 flexible.

Not done: authorisation.
"""

from __future__ import annotations

from broker.context import Handler, RequestContext, Services
from broker.replication.replica_manager import ReplicaManager
from protocol.errors import KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def build(services: Services) -> Handler:
    replica_manager = services.replica_manager

    def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(replica_manager, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
        return OffsetForLeaderEpochResponse(topics=topics)

    return handle


def _answer(replica_manager: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replica_manager.get_partition(topic, asked.partition)
        end = partition.end_offset_for_epoch(asked.current_leader_epoch, asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
