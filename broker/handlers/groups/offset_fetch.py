"""OffsetFetch (key 9): a group's committed offsets.

Serves v1–v10.

Behaviour:
- A partition without a committed offset, in a group known or unknown, is offset -1 with no error. Null topics means all.
- GROUP_AUTHORIZATION_FAILED for a group without DESCRIBE on it. Without DESCRIBE on a topic: TOPIC_AUTHORIZATION_FAILED for each of its
  partitions, or where all topics are asked for, the topic is left out.
- Only committed records are read. require_stable waits until all earlier appends are committed, and answers UNSTABLE_OFFSET_COMMIT for
offsets of an open transaction (KIP-447).
- A group named twice is answered twice, as by Kafka. A group whose offsets do not fit into an answer's size is POLICY_VIOLATION.
- Topic names are not checked: offsets of unknown topics can be read until they expire. Offsets of a topic are deleted with it, at the
latest when the next coordinator has loaded its groups; Kafka keeps them if no coordinator had loaded them at that moment.

Version notes:
- v1: errors of the group are given for each partition; v2: once, in error_code. v5: leader epochs. v7: require_stable.
- v8: several groups, each with its own error. v9: members of KIP-848 groups name themselves; ignored for classic groups.
- v10: topics by their ids; an unknown one is UNKNOWN_TOPIC_ID for each partition. A request for all topics leaves out offsets of deleted
topics. An offset of an earlier topic of the same name is not returned.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

from broker.groups.offset_reads import OffsetReads
from broker.handlers.services import Handler, Services
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns, make_in_turns
from broker.metadata.metadata_cache import MetadataCache
from broker.network.answer_size import AnswerSize
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.uuids import ZERO_UUID

UNKNOWN_PARTITION_BYTES = 30
VERSION_GROUPS = 8
VERSION_TOP_LEVEL_ERROR = 2
VERSION_TOPIC_IDS = 10
NO_OFFSET = -1


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: OffsetFetchRequest) -> Any:
        return at_once_or_in_turns(_answer(context, request), IDS_AT_ONCE)

    def _answer(context: RequestContext, request: OffsetFetchRequest) -> Work:
        access = context.access
        is_batch = context.api_version >= VERSION_GROUPS
        groups = request.groups if is_batch else [_single_group(request)]
        answers: list[OffsetFetchResponseGroup] = []
        size = AnswerSize()
        reads = coordinator.offset_reads(size, require_stable=request.require_stable)
        uses_ids = context.api_version >= VERSION_TOPIC_IDS
        for group in groups:
            try:
                access.require(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
                if uses_ids:
                    answers.append((yield from _read_by_ids(services.metadata, access, reads, group, size)))
                elif access.is_open:
                    answers.append((yield from reads.read(group)))
                else:
                    answers.append((yield from _read_by_names(access, reads, group, size)))
            except KafkaError as e:
                answers.append(_failed(group, e))  # not e: its traceback holds this frame, a cycle
            yield
        return (yield from _response(context.api_version, request, answers))

    return handle


def _read_by_ids(
    metadata: MetadataCache, access: Access, reads: OffsetReads, group: OffsetFetchRequestGroup, size: AnswerSize
) -> Generator[Any, Any, OffsetFetchResponseGroup]:
    """As OffsetReads.read, for topics given by their ids."""
    known: list[OffsetFetchRequestTopics] | None = None
    failed: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        known = []
        for topic in group.topics:
            image = metadata.find_topic_by_id(topic.topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_ID if image is None else access.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, image.name)
            if image is not None and not error:
                topic.name = image.name
                known.append(topic)
            else:
                size.take(UNKNOWN_PARTITION_BYTES * len(topic.partition_indexes))
                failed.append((yield from _failed_topic(topic.name, topic.topic_id, topic.partition_indexes, error)))
            yield
    named = OffsetFetchRequestGroup(group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known)
    answer = yield from reads.read(named)
    answered: list[OffsetFetchResponseTopics] = []
    for found in answer.topics:
        image = metadata.find_topic(found.name)
        if image is not None and (known is not None or access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, found.name)):
            found.topic_id = image.topic_id
            answered.append(found)
        yield
    answer.topics = answered + failed
    return answer


def _read_by_names(
    access: Access, reads: OffsetReads, group: OffsetFetchRequestGroup, size: AnswerSize
) -> Generator[Any, Any, OffsetFetchResponseGroup]:
    """As OffsetReads.read, for topics that the client may DESCRIBE."""
    if group.topics is None:
        answer = yield from reads.read(group)
        allowed: list[OffsetFetchResponseTopics] = []
        for found in answer.topics:
            if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, found.name):
                allowed.append(found)
            yield
        answer.topics = allowed
        return answer
    known: list[OffsetFetchRequestTopics] = []
    failed: list[OffsetFetchResponseTopics] = []
    for topic in group.topics:
        refusal = access.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        if refusal:
            size.take((UNKNOWN_PARTITION_BYTES * len(topic.partition_indexes)) + len(topic.name))
            failed.append((yield from _failed_topic(topic.name, ZERO_UUID, topic.partition_indexes, refusal)))
        else:
            known.append(topic)
        yield
    named = OffsetFetchRequestGroup(group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known)
    answer = yield from reads.read(named)
    answer.topics += failed
    return answer


def _failed_topic(name: str, topic_id: bytes, indexes: list[int], error: ErrorCode) -> Generator[None, None, OffsetFetchResponseTopics]:
    def failed(index: int) -> OffsetFetchResponsePartitions:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)

    partitions = yield from make_in_turns(failed, indexes)
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _response(
    version: int, request: OffsetFetchRequest, answers: list[OffsetFetchResponseGroup]
) -> Generator[None, None, OffsetFetchResponse]:
    if version >= VERSION_GROUPS:
        return OffsetFetchResponse(groups=answers)
    return (yield from _single_response(request, answers[0], version))


def _failed(group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)


def error_response(request: OffsetFetchRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_error_response(request, error))


def _error_response(request: OffsetFetchRequest, error: KafkaError) -> Generator[None, None, OffsetFetchResponse]:
    if request.groups:
        return OffsetFetchResponse(groups=(yield from make_in_turns(lambda group: _failed(group, error), request.groups)))
    return OffsetFetchResponse(topics=(yield from _error_topics(request, error.code)), error_code=error.code)


def _single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    if request.topics is None:
        return OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    topics = cast("list[OffsetFetchRequestTopics]", request.topics)  # it has the fields that are needed here
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _single_response(
    request: OffsetFetchRequest, group: OffsetFetchResponseGroup, api_version: int
) -> Generator[None, None, OffsetFetchResponse]:
    if group.error_code and api_version < VERSION_TOP_LEVEL_ERROR:
        return OffsetFetchResponse(topics=(yield from _error_topics(request, group.error_code)))
    response = OffsetFetchResponse(topics=(yield from _single_topics(group.topics)), error_code=group.error_code)
    return response


def _single_topics(topics: list[OffsetFetchResponseTopics]) -> Generator[None, None, list[OffsetFetchResponseTopic]]:
    answers: list[OffsetFetchResponseTopic] = []
    for topic in topics:
        answer = OffsetFetchResponseTopic(name=topic.name, partitions=[])
        answers.append(answer)
        yield
        answer.partitions = yield from make_in_turns(_single_partition, topic.partitions)
    return answers


def _single_partition(found: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=found.partition_index,
        committed_offset=found.committed_offset,
        committed_leader_epoch=found.committed_leader_epoch,
        metadata=found.metadata,
        error_code=found.error_code,
    )


def _error_topics(request: OffsetFetchRequest, error_code: int) -> Generator[None, None, list[OffsetFetchResponseTopic]]:
    def failed(index: int) -> OffsetFetchResponsePartition:
        return OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, error_code=error_code)

    topics: list[OffsetFetchResponseTopic] = []
    for topic in request.topics or []:
        answer = OffsetFetchResponseTopic(name=topic.name, partitions=[])
        topics.append(answer)
        yield
        answer.partitions = yield from make_in_turns(failed, topic.partition_indexes)
    return topics
