"""OffsetCommit (key 8): commit a group's offsets.

Serves v2–v10.

Behaviour:
- A member commits in its generation; without member and generation (-1) a simple consumer or a tool commits for a group without members. A
member's commit counts as a heartbeat.
- Answered when the offsets are committed in `__consumer_offsets`.
- A topic without partitions in the request is not in the answer, unless it does not exist; as in Kafka.
- Many partitions are committed in turns, PARTITIONS_PER_BATCH at a time, and may each have an error of their own. A request whose records
exceed the size of one batch is refused: UNKNOWN_SERVER_ERROR for each partition, as in Kafka, which writes one batch.
- GROUP_AUTHORIZATION_FAILED without READ on the group; TOPIC_AUTHORIZATION_FAILED for partitions of a topic without READ on it.
- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION each; metadata longer than offset.metadata.max.bytes is
OFFSET_METADATA_TOO_LARGE; the others are committed all the same. An error of the group is set for all other partitions.

Version notes:
- v2–v4: retention_time_ms, which gives the offset its own expiry time. v6: leader epochs (KIP-320). v7: static members.
- v9: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION (KIP-848).
- v10: topics by their ids; an unknown one is UNKNOWN_TOPIC_ID for each partition.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from broker.groups.coordinator import commit_error_response
from broker.groups.replies import mapped
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns, is_many, make_in_turns
from broker.metadata.image import GROUP_METADATA_TOPIC, TopicImage
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.compression import Compression
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.uuids import ZERO_UUID

PARTITIONS_PER_BATCH = 1_000
"""More go in turns: a commit takes 10 µs a partition, its replay included."""
VERSION_TOPIC_IDS = 10
RECORD_SIZE_MIN = 45
"""Bytes of one offset's record without the names of group and topic and the metadata, in the shortest version."""


def build(services: Services) -> Handler:
    return OffsetCommitHandler(services).handle


class OffsetCommitHandler:
    """Stateless between requests."""

    def __init__(self, services: Services) -> None:
        self._coordinator = services.group_coordinator
        self._metadata = services.metadata
        self._metadata_max_size = services.config.offset_metadata_max_bytes
        self._is_compressed = services.config.offsets_topic_compression_codec != Compression.NONE

    def handle(self, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Deferred | Work:
        context.access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if is_many((topic.partitions for topic in request.topics), PARTITIONS_PER_BATCH):
            return self._commit_in_turns(context, request)
        has_topics = bool(request.topics)
        ids: dict[str, bytes] | None = {} if context.api_version >= VERSION_TOPIC_IDS else None
        unknown = self._take_unknown(request, ids, context.access)
        if has_topics and not request.topics:
            return _merged(OffsetCommitResponse(), unknown, ids)
        response = self._commit(context, request)
        if not unknown and ids is None:
            return response
        if isinstance(response, Deferred):
            return mapped(response, lambda committed: _merged(committed, unknown, ids))
        return _merged(response, unknown, ids)

    def _commit(self, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Deferred:
        try:
            return self._coordinator.commit_offsets(request, context.api_version)
        except KafkaError as e:
            return commit_error_response(request, e.code)

    def _take_unknown(self, request: OffsetCommitRequest, ids: dict[str, bytes] | None, access: Access) -> list[OffsetCommitResponseTopic]:
        """Remove unknown topics and partitions from the request, and topics that the client may not READ. Returns their answers. With
        `ids`, to which ids are added by name, topics that the request gives by their ids get their names."""
        unknown: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            image = self._find(topic, uses_ids=ids is not None)
            if image is not None and ids is not None:
                topic.name = image.name
                ids[image.name] = image.topic_id
            if (image is not None or ids is None) and not access.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
                indexes = [partition.partition_index for partition in topic.partitions]
                unknown.append(_failed(topic, indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                topic.partitions = []
                continue
            count = 0 if image is None else len(image.partitions)
            missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
            if missing or image is None:
                topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
                error = ErrorCode.UNKNOWN_TOPIC_ID if image is None and ids is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                unknown.append(_failed(topic, [partition.partition_index for partition in missing], error))
        request.topics = [topic for topic in request.topics if topic.partitions]
        return unknown

    def _find(self, topic: OffsetCommitRequestTopic, *, uses_ids: bool) -> TopicImage | None:
        return self._metadata.find_topic_by_id(topic.topic_id) if uses_ids else self._metadata.find_topic(topic.name)

    # -- many partitions, in turns -------------------------------------------------------------------------------------

    def _commit_in_turns(self, context: RequestContext, request: OffsetCommitRequest) -> Work:
        """Split the request into batches. Each is a separate commit, awaited before the next."""
        refusal: ErrorCode | None = None
        ids = dict[str, bytes]() if context.api_version >= VERSION_TOPIC_IDS else None
        if (yield from self._is_too_large(request, uses_ids=ids is not None)):
            refusal = self._find_group_error(context, request) or ErrorCode.UNKNOWN_SERVER_ERROR
        answer = _Answer(ids)
        for batch in _batches(request):
            if refusal is None:
                unknown = self._take_unknown(batch, ids, context.access)
                outcome = self._commit(context, batch) if batch.topics else OffsetCommitResponse()
                answer.extend(unknown)
                answer.extend(((yield outcome) if isinstance(outcome, Deferred) else outcome).topics)
            else:
                answer.extend(self._take_unknown(batch, ids, context.access))
                answer.extend(commit_error_response(batch, refusal).topics)
            yield
        return answer.response

    def _is_too_large(self, request: OffsetCommitRequest, *, uses_ids: bool) -> Generator[None, None, bool]:
        """Whether Kafka's single batch would be larger than max.message.bytes of `__consumer_offsets`. For a compressed topic Kafka
        checks the compressed size, which is not known before."""
        if self._is_compressed:
            return False
        limit = self._metadata.log_config(GROUP_METADATA_TOPIC).max_message_bytes
        size_bytes = 0
        for batch in _batches(request):
            for topic in batch.topics:
                image = self._find(topic, uses_ids=uses_ids)
                if image is None:
                    continue
                count = len(image.partitions)
                fixed_size = RECORD_SIZE_MIN + len(request.group_id) + len(image.name)
                for partition in topic.partitions:
                    metadata_size = len(partition.committed_metadata or "")
                    if 0 <= partition.partition_index < count and metadata_size <= self._metadata_max_size:
                        size_bytes += fixed_size + metadata_size
            if size_bytes > limit:
                return True
            yield
        return False

    def _find_group_error(self, context: RequestContext, request: OffsetCommitRequest) -> ErrorCode | None:
        """Errors of the group and of the member come before errors of the size."""
        try:
            self._coordinator.commit_offsets(_part(request, []), context.api_version)
        except KafkaError as e:
            return e.code
        return None


class _Answer:
    """Collects a response with one entry for each topic: clients look a topic up by its name, and a second entry would hide the first.
    `ids` has the ids of existing topics by name."""

    def __init__(self, ids: Mapping[str, bytes] | None = None) -> None:
        self.response = OffsetCommitResponse()
        self._ids = ids
        self._topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}

    def extend(self, topics: list[OffsetCommitResponseTopic]) -> None:
        for topic in topics:
            self._topic(topic.name, topic.topic_id).partitions.extend(topic.partitions)

    def _topic(self, name: str, topic_id: bytes) -> OffsetCommitResponseTopic:
        if name:
            topic_id = ZERO_UUID if self._ids is None else self._ids.get(name, topic_id)
        topic = self._topics.get((name, topic_id))
        if topic is None:
            topic = self._topics[name, topic_id] = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
            self.response.topics.append(topic)
        return topic


def _batches(request: OffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    """The request in parts of PARTITIONS_PER_BATCH partitions at most."""
    topics: list[OffsetCommitRequestTopic] = []
    room = PARTITIONS_PER_BATCH
    for topic in request.topics:
        start = 0
        if not topic.partitions:
            # An unknown topic is answered too.
            topics.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id))
        while start < len(topic.partitions):
            partitions = topic.partitions[start : start + room]
            topics.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
            start += len(partitions)
            room -= len(partitions)
            if not room:
                yield _part(request, topics)
                topics, room = [], PARTITIONS_PER_BATCH
    if topics:
        yield _part(request, topics)


def _part(request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    """Returns a copy of the request with a part of its partitions."""
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=topics,
    )


def error_response(request: OffsetCommitRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_error_response(request, error))


def _error_response(request: OffsetCommitRequest, error: KafkaError) -> Generator[None, None, OffsetCommitResponse]:
    def failed(partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error.code)

    answer = _Answer()
    for topic in request.topics:
        name = "" if topic.topic_id != ZERO_UUID else topic.name  # which the request gave
        partitions = yield from make_in_turns(failed, topic.partitions)
        answer.extend([OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)])
        yield
    return answer.response


def _failed(topic: OffsetCommitRequestTopic, indexes: list[int], error: ErrorCode) -> OffsetCommitResponseTopic:
    partitions = [OffsetCommitResponsePartition(partition_index=index, error_code=error) for index in indexes]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _merged(
    response: OffsetCommitResponse, unknown: list[OffsetCommitResponseTopic], ids: Mapping[str, bytes] | None
) -> OffsetCommitResponse:
    """One entry per topic."""
    answer = _Answer(ids)
    answer.extend(unknown)
    answer.extend(response.topics)
    return answer.response
