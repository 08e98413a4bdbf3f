"""OffsetFetch (key 9): a group's kept positions.

Serves v1–v9.

Behaviour:
- A partition without a committed offset, in a group known or unknown, is offset -1 with no error. Null topics means all.
- require_stable waits for commits in flight, and answers UNSTABLE_OFFSET_COMMIT for offsets of an open transaction (KIP-447).
- A group named twice is answered twice, as by Kafka. A group whose offsets do not fit into an answer's size is POLICY_VIOLATION.
- Topics are not looked up: offsets of topics that are gone may be read until they expire.

Version notes:
- v1: errors of the group are given for each partition; v2: once, in error_code. v5: leader epochs. v7: require_stable.
- v8: several groups, each with its own error. v9: members of KIP-848 groups name themselves; ignored for classic groups.

Not done: v10, with topic ids.
"""

from __future__ import annotations

from typing import Any

from broker.answer_size import AnswerSize
from broker.context import Handler, RequestContext, Services
from broker.groups.replies import gathered
from broker.pieces import at_once_or_in_turns, text_pieces
from broker.turns import Work
from protocol.errors import KafkaError
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

VERSION_GROUPS = 8
VERSION_TOP_LEVEL_ERROR = 2
NO_OFFSET = -1


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: OffsetFetchRequest) -> Any:
        return at_once_or_in_turns(_answer(context, request))

    def _answer(context: RequestContext, request: OffsetFetchRequest) -> Work:
        is_batch = context.api_version >= VERSION_GROUPS
        groups = request.groups if is_batch else [_single_group(request)]
        answers: list[Any] = []
        size = AnswerSize()
        for piece in text_pieces([group.group_id for group in groups]):
            for group in groups[len(answers) : len(answers) + len(piece)]:
                try:
                    answers.append((yield from coordinator.fetch_offsets(group, size, require_stable=request.require_stable)))
                except KafkaError as e:
                    answers.append(e)
            yield
        return gathered(answers, lambda answers: _response(context.api_version, request, groups, answers))

    return handle


def _response(
    version: int,
    request: OffsetFetchRequest,
    groups: list[OffsetFetchRequestGroup],
    answers: list[OffsetFetchResponseGroup | KafkaError],
) -> OffsetFetchResponse:
    answered = [_failed(group, answer) if isinstance(answer, KafkaError) else answer for group, answer in zip(groups, answers, strict=True)]
    return OffsetFetchResponse(groups=answered) if version >= VERSION_GROUPS else _single_response(request, answered[0], version)


def _failed(group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)


def error_response(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    if request.groups:
        groups = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    return OffsetFetchResponse(topics=_error_topics(request, error.code), error_code=error.code)


def _single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    if request.topics is None:
        return OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    topics = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _single_response(request: OffsetFetchRequest, group: OffsetFetchResponseGroup, api_version: int) -> OffsetFetchResponse:
    if group.error_code and api_version < VERSION_TOP_LEVEL_ERROR:
        return OffsetFetchResponse(topics=_error_topics(request, group.error_code))
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=found.partition_index,
                    committed_offset=found.committed_offset,
                    committed_leader_epoch=found.committed_leader_epoch,
                    metadata=found.metadata,
                    error_code=found.error_code,
                )
                for found in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _error_topics(request: OffsetFetchRequest, error_code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, error_code=error_code)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
