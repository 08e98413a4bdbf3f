"""DescribeTopicPartitions (key 75). Serves v0.

Behaviour:
- Partitions of the asked topics, or of all, in the order of the topics' names, from the cursor on; at most the asked number, at
  most max.request.partition.size.limit. What did not fit begins at `next_cursor`.
- TOPIC_AUTHORIZATION_FAILED for an asked topic that the client may not DESCRIBE; of all topics it is left out.
- An asked topic that is not there: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for a bad name.
- A cursor outside the asked topics, or a negative partition in it: INVALID_REQUEST for every asked topic.

Source: DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.describeTopicResponse (KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns, in_turns_if_many
from broker.metadata.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from broker.metadata.listener_view import ListenerView
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.topic_names import find_name_fault
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

NO_LEADER_ID = -1


def build(services: Services) -> Handler:
    cache, partitions_max = services.metadata, services.config.max_request_partition_size_limit

    def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Any:
        return at_once_or_in_turns(_answer(context, request))

    def _answer(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Work:
        wants_all, access = not request.topics, context.access
        names = _names(request, cache)
        view = ListenerView(cache, context.connection.listener.name)
        remaining = max(min(partitions_max, request.response_partition_limit), 1)
        response = DescribeTopicPartitionsResponse(topics=[])
        refused: list[DescribeTopicPartitionsResponseTopic] = []
        if not access.is_open:
            names = yield from _allowed(access, names, refused, wants_all=wants_all)
        for name in names:
            yield
            if remaining == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = cache.find_topic(name)
            if topic is None:
                if not wants_all:
                    response.topics.append(_error_topic(name))
                continue
            start = request.cursor.partition_index if request.cursor is not None and request.cursor.topic_name == name else 0
            end = min(len(topic.partitions), start + remaining)
            answer = _topic(topic)
            response.topics.append(answer)
            for index in range(start, end):
                answer.partitions.append(_partition(view, index, topic.partitions[index]))
                yield
            if end < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                break
            remaining -= max(end - start, 0)
        for told in response.topics:
            told.topic_authorized_operations = access.authorized_operations(ResourceType.TOPIC, told.name or "")
            yield
        response.topics += refused
        return response

    return handle


def error_response(request: DescribeTopicPartitionsRequest, error: KafkaError) -> Any:
    topics = [DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics]
    return in_turns_if_many(DescribeTopicPartitionsResponse(topics=topics), [topics])


def _names(request: DescribeTopicPartitionsRequest, cache: MetadataCache) -> list[str]:
    """The topics to describe, in order, from the cursor's on. Raises KafkaError INVALID_REQUEST for a cursor that cannot be."""
    asked: Collection[str] = {topic.name for topic in request.topics} if request.topics else cache.topics
    cursor = request.cursor
    if cursor is None:
        return sorted(asked)
    first_name = cursor.topic_name
    if request.topics and first_name not in asked:
        why = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {first_name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    return sorted(name for name in asked if name >= first_name)


def _allowed(
    access: Access, names: list[str], refused: list[DescribeTopicPartitionsResponseTopic], *, wants_all: bool
) -> Generator[None, None, list[str]]:
    """Returns the names of topics that the client may DESCRIBE. Whether the others exist is not told: their answers are added to
    `refused`, but of all topics they are left out."""
    allowed: list[str] = []
    for name in names:
        if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            allowed.append(name)
        elif not wants_all:
            refused.append(DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
        yield
    return allowed


def _topic(topic: TopicImage) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[],
    )


def _partition(view: ListenerView, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    leader = view.find_leader(partition)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=NO_LEADER_ID if leader is None else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas(partition),
    )


def _error_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if find_name_fault(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
