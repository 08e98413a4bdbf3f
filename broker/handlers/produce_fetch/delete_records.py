"""DeleteRecords (key 21). Serves v0–v2.

Behaviour:
- The leader's log start moves to the offset; -1 stands for the high watermark. The answer waits until the other live replicas have moved
their log starts too, and the leader's copy if it is moving to another log directory. It has the low watermark: the lowest log start of
these replicas.
- TOPIC_AUTHORIZATION_FAILED without DELETE on the topic.
- OFFSET_OUT_OF_RANGE beyond the high watermark and below -1; POLICY_VIOLATION for a topic that is compacted and not deleted;
INVALID_TOPIC_EXCEPTION for internal topics; UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
- REQUEST_TIMED_OUT when a replica takes longer than timeout_ms: the records are deleted all the same.
- If a partition is named twice, the last offset counts.

Version notes: v2 flexible.

Source: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.replication.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from broker.replication.partition import Partition
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    INVALID_LOW_WATERMARK,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.errors import StorageError


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: DeleteRecordsRequest) -> Any:
        return at_once_or_in_turns(_deleted(services, context.access, request))

    return handle


def _deleted(services: Services, access: Access, request: DeleteRecordsRequest) -> Work:
    response = DeleteRecordsResponse(topics=[])
    pending: dict[Partition, PendingDeletion] = {}
    results: dict[str, DeleteRecordsTopicResult] = {}
    refusals: dict[str, ErrorCode] = {}
    offsets: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        if topic.name not in results:
            results[topic.name] = DeleteRecordsTopicResult(name=topic.name, partitions=[])
            response.topics.append(results[topic.name])
            refusals[topic.name] = access.refusal(AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        for asked in topic.partitions:
            offsets[topic.name, asked.partition_index] = asked.offset
        yield
    for (name, index), offset in offsets.items():
        refusal = refusals[name]
        if refusal:
            answered = DeleteRecordsPartitionResult(partition_index=index, low_watermark=INVALID_LOW_WATERMARK, error_code=refusal)
        else:
            answered = _delete(services, name, index, offset, pending)
        results[name].partitions.append(answered)
        yield
    if not pending:
        return response
    purgatory = services.replica_manager.delete_records_purgatory
    answer = Deferred()
    operation = DelayedDeleteRecords(pending, lambda: answer.complete(response))
    if not purgatory.try_complete_else_watch(operation, tuple(pending), max(request.timeout_ms, 0)):
        answer.on_abandon = lambda: purgatory.cancel(operation)
    return answer


def _delete(
    services: Services, topic: str, index: int, offset: int, pending: dict[Partition, PendingDeletion]
) -> DeleteRecordsPartitionResult:
    """Returns the answer, which a deletion in `pending` may still change."""
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=INVALID_LOW_WATERMARK)
    replica_manager = services.replica_manager
    known = services.metadata.find_topic(topic)
    if known is not None and known.is_internal and index < len(known.partitions):
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return result
    try:
        partition = replica_manager.get_partition(topic, index)
        required_offset = partition.delete_records(offset)
    except KafkaError as error:
        result.error_code = error.code
        return result
    except StorageError as error:
        replica_manager.fail_log_dir(partition.log.directory.parent, error)
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    replica_manager.on_progress(partition)
    result.low_watermark = partition.in_sync.low_watermark
    if result.low_watermark < required_offset:
        pending[partition] = PendingDeletion(required_offset, result)
    return result
