"""OffsetDelete (key 47): remove a group's offsets for partitions. Serves v0.

Behaviour:
- Answered when the tombstones are committed in `__consumer_offsets`; a missing offset is not an error.
- GROUP_AUTHORIZATION_FAILED without DELETE on the group; TOPIC_AUTHORIZATION_FAILED for partitions of a topic without READ on it.
- UNKNOWN_TOPIC_OR_PARTITION and GROUP_SUBSCRIBED_TO_TOPIC for a partition; for the whole request INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP (members that are not consumers), or an error of the coordinator.
- A topic without partitions in the request is not in the answer, unless it does not exist; as in Kafka.
- More than RECORDS_PER_BATCH partitions are deleted in several steps: an error in a later one leaves the earlier ones deleted.

Source: KafkaApis.handleOffsetDeleteRequest, OffsetDeleteResponse.Builder (KIP-496).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.groups.deletions import RECORDS_PER_BATCH, Deletions
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import ELEMENTS_AT_ONCE, Work, at_once_or_in_turns
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator
    metadata = services.metadata

    def handle(context: RequestContext, request: OffsetDeleteRequest) -> Any:
        context.access.require(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
        return at_once_or_in_turns(_answer(context.access, request), ELEMENTS_AT_ONCE)

    def _answer(access: Access, request: OffsetDeleteRequest) -> Work:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        unknown, known = yield from _divided(metadata, access, request.topics)
        deletions = coordinator.deletions()
        written: list[Deferred] = []
        batch: list[tuple[str, OffsetDeleteResponsePartition]] = []
        try:
            for topic in known:
                for partition in topic.partitions:
                    batch.append((topic.name, partition))
                    if len(batch) == RECORDS_PER_BATCH:
                        written.append(_delete(deletions, request.group_id, batch))
                        batch = []
                        yield
            if batch or not written:  # the group is checked even if there is nothing to delete
                written.append(_delete(deletions, request.group_id, batch))
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)
        for outcome in written:
            error_code = yield outcome
            if error_code != ErrorCode.NONE:
                return OffsetDeleteResponse(error_code=error_code)
        return OffsetDeleteResponse(topics=(yield from _merged(unknown, known)))

    return handle


def _divided(
    metadata: MetadataCache, access: Access, topics: list[OffsetDeleteRequestTopic]
) -> Generator[None, None, tuple[dict[str, OffsetDeleteResponseTopic], list[OffsetDeleteResponseTopic]]]:
    """Returns the answers for unknown topics and partitions, and for topics that the client may not READ, by topic; and those for existing
    ones."""
    unknown: dict[str, OffsetDeleteResponseTopic] = {}
    known: list[OffsetDeleteResponseTopic] = []
    for topic in topics:
        refusal = access.refusal(AclOperation.READ, ResourceType.TOPIC, topic.name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        image = metadata.find_topic(topic.name) if refusal is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
        count = 0 if image is None else len(image.partitions)
        found = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
        missing: list[OffsetDeleteResponsePartition] = []
        for asked in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            if 0 <= asked.partition_index < count:
                found.partitions.append(answer)
            else:
                answer.error_code = refusal
                missing.append(answer)
            yield
        if missing or image is None:
            unknown.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name, partitions=[])).partitions.extend(missing)
        if found.partitions:
            known.append(found)
        yield
    return unknown, known


def _delete(deletions: Deletions, group_id: str, batch: list[tuple[str, OffsetDeleteResponsePartition]]) -> Deferred:
    errors, written = deletions.delete_offsets(group_id, [(topic, answer.partition_index) for topic, answer in batch])
    for (_, answer), error in zip(batch, errors, strict=True):
        answer.error_code = error
    return written


def _merged(
    by_name: dict[str, OffsetDeleteResponseTopic], known: list[OffsetDeleteResponseTopic]
) -> Generator[None, None, list[OffsetDeleteResponseTopic]]:
    """One entry a topic if some partitions do not exist, whose answers are given by topic; else the entries are the request's."""
    if not by_name:
        return known
    merged: list[OffsetDeleteResponseTopic] = []
    for topic in by_name.values():
        merged.append(topic)
        yield
    for topic in known:
        existing = by_name.get(topic.name)
        if existing is None:
            by_name[topic.name] = topic
            merged.append(topic)
        else:
            existing.partitions.extend(topic.partitions)
        yield
    return merged
