"""DescribeTopicPartitions (key 75). Serves v0.

Behaviour:
- Partitions of the asked topics, or of all, in the order of the topics' names, from the cursor on; at most the asked number, at
  most max.request.partition.size.limit. What did not fit begins at `next_cursor`.
- An asked topic that is not there: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for a bad name.
- A cursor outside the asked topics, or a negative partition in it: INVALID_REQUEST for every asked topic.

Source: DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.describeTopicResponse (KIP-966).
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Generator
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.pieces import Pace, pieces
from broker.loop.turns import Work, at_once_or_in_turns, make_in_turns
from broker.metadata.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from broker.metadata.listener_view import ALL_TOPIC_OPERATIONS, ListenerView
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.topic_names import find_name_fault
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)

NO_LEADER_ID = -1
PIECE_NAMES = 500  # that are collected or sorted between two yields: 0.1 ms


def build(services: Services) -> Handler:
    cache, partitions_max = services.metadata, services.config.max_request_partition_size_limit

    def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Any:
        return at_once_or_in_turns(_answer(context, request))

    def _answer(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Work:
        wants_all = not request.topics
        ordered = yield from _names(request, cache)
        view = ListenerView(cache, context.connection.listener.name)
        remaining = max(min(partitions_max, request.response_partition_limit), 1)
        response = DescribeTopicPartitionsResponse(topics=[])
        pace = Pace()
        for name in heapq.merge(*ordered):
            if pace.is_due():
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
            for piece in pieces(range(start, end)):
                answer.partitions += [_partition(view, index, topic.partitions[index]) for index in piece]
                if pace.is_due(len(piece)):
                    yield
            if end < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                break
            remaining -= max(end - start, 0)
        return response

    return handle


def error_response(request: DescribeTopicPartitionsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: DescribeTopicPartitionsRequest, error: KafkaError) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    def failed(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)

    return DescribeTopicPartitionsResponse(topics=(yield from make_in_turns(failed, request.topics)))


def _names(request: DescribeTopicPartitionsRequest, cache: MetadataCache) -> Generator[None, None, list[list[str]]]:
    """The topics to describe, from the cursor's on, in lists that are each in order. Raises KafkaError INVALID_REQUEST for a cursor
    that cannot be."""
    cursor = request.cursor
    named: dict[str, None] = {}
    names: list[str] = []
    for topics in pieces(request.topics, PIECE_NAMES):
        for topic in topics:
            if topic.name not in named:
                named[topic.name] = None
                names.append(topic.name)
        yield
    asked: Container[str] = named if request.topics else cache.topics
    if cursor is not None:
        first_name = cursor.topic_name
        if request.topics and first_name not in asked:
            why = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {first_name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    # Sorted piece by piece: a hundred thousand names at once take 50 ms.
    ordered = []
    for piece in pieces(names if request.topics else list(cache.topics), PIECE_NAMES):
        ordered.append(sorted(piece if cursor is None else [name for name in piece if name >= first_name]))
        yield
    return ordered


def _topic(topic: TopicImage) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
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
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=ALL_TOPIC_OPERATIONS
    )
