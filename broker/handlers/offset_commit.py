"""OffsetCommit (key 8): keep a group's positions.

Serves v2–v9.

Behaviour:
- A member commits in its generation; without member and generation (-1) a simple consumer or a tool commits for a group that
  has no members now. It counts as a heartbeat.
- Answered when the offsets are committed in `__consumer_offsets`.
- Nothing is said of a topic without partitions, unless it does not exist; as in Kafka.
- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION each; metadata longer than offset.metadata.max.bytes is
  OFFSET_METADATA_TOO_LARGE; the others are committed all the same. Errors of the group are given for every other partition.

Version notes:
- v2–v4: retention_time_ms, honoured as an expiry time of its own. v6: leader epochs (KIP-320). v7: static members.
- v9: GROUP_ID_NOT_FOUND where older versions say ILLEGAL_GENERATION (KIP-848).

Not done: members of the newer protocol (KIP-848); v10, with topic ids.
"""

from __future__ import annotations

from broker.context import Handler, RequestContext, Services
from broker.deferred import Deferred
from broker.groups.coordinator import commit_error_response
from broker.groups.replies import mapped
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator
    find_topic = services.metadata.find_topic

    def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Deferred:
        has_topics = bool(request.topics)
        unknown = _take_unknown(request)
        if has_topics and not request.topics:
            return OffsetCommitResponse(topics=unknown)
        try:
            response = coordinator.commit_offsets(context, request)
        except KafkaError as e:
            response = error_response(request, e)
        if not unknown:
            return response
        if isinstance(response, Deferred):
            return mapped(response, lambda committed: _merged(committed, unknown))
        return _merged(response, unknown)

    def _take_unknown(request: OffsetCommitRequest) -> list[OffsetCommitResponseTopic]:
        """Take out of the request what does not exist, and answer for it."""
        unknown: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            image = find_topic(topic.name)
            count = 0 if image is None else len(image.partitions)
            missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
            if missing or image is None:
                topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
                unknown.append(_unknown_response(topic, [partition.partition_index for partition in missing]))
        request.topics = [topic for topic in request.topics if topic.partitions]
        return unknown

    return handle


def error_response(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return commit_error_response(request, error.code)


def _unknown_response(topic: OffsetCommitRequestTopic, indexes: list[int]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes
        ],
    )


def _merged(response: OffsetCommitResponse, unknown: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """One entry per topic: clients look a topic up by its name, and a second entry would hide the first."""
    by_name = {topic.name: topic for topic in unknown}
    for topic in response.topics:
        existing = by_name.get(topic.name)
        if existing is None:
            by_name[topic.name] = topic
        else:
            existing.partitions.extend(topic.partitions)
    return OffsetCommitResponse(topics=list(by_name.values()))
