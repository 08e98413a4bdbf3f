"""The topics that a request names: duplicates, and DeleteTopics' names and ids. Pure.

Source: ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker.controller.controller_result import Pace, Steps, check_records_count
from broker.metadata.cluster_state import ClusterState
from broker.security.authorizer.access import AUTHORIZATION_MESSAGES, Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest
from protocol.uuids import ZERO_UUID

NOT_AUTHORIZED = AUTHORIZATION_MESSAGES[ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def find_duplicates(elements: Iterable[Any], identity: Callable[[Any], Any]) -> dict[Any, None]:
    """Returns the identities that more than one of the elements have, in order, as the keys of a dict."""
    seen: set[Any] = set()
    duplicates: dict[Any, None] = {}
    for value in map(identity, elements):
        if value in seen:
            duplicates[value] = None
        seen.add(value)
    return duplicates


def check_partitions_count(topics: Iterable[Any]) -> None:
    """Raises KafkaError POLICY_VIOLATION when the topics name more partitions than an operation may change."""
    check_records_count(sum(len(topic.partitions) for topic in topics))


def topics_to_delete(
    state: ClusterState, request: DeleteTopicsRequest, access: Access, results: list[DeletableTopicResult]
) -> Steps[dict[bytes, str]]:
    """Returns the topics that the request names, by id; one may be deleted between two steps. Wrong names and ids, and topics that the
    client may not delete, are answered in `results`: without a name, or an id, that the client may not describe."""

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, why: str) -> None:
        results.append(failed_deletion(name, topic_id, code, why))

    pace = Pace()
    names, ids = list(request.topic_names), []
    for topic in request.topics:
        if pace.is_due():
            yield []
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            refuse(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        elif topic.name is not None:
            names.append(topic.name)
        elif topic.topic_id != ZERO_UUID:
            ids.append(topic.topic_id)
        else:
            refuse(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    duplicate_names = find_duplicates(names, str)
    duplicate_ids = find_duplicates(ids, bytes)
    for name in duplicate_names:
        refuse(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    for topic_id in duplicate_ids:
        refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    rights = _DeletionRights(access)
    doomed: dict[bytes, str] = {}
    for topic_id in ids:
        if pace.is_due():
            yield []
        found = state.topics_by_id.get(topic_id)
        if topic_id in duplicate_ids:
            continue
        if found is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            continue
        is_describable, is_deletable = rights.of(found.name)
        if not is_deletable:
            refuse(found.name if is_describable else None, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
        else:
            doomed[topic_id] = found.name
    for name in names:
        if pace.is_due():
            yield []
        if name in duplicate_names:
            continue
        is_describable, is_deletable = rights.of(name)
        found = state.topics.get(name)
        if not is_describable:
            refuse(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
        elif found is None:
            refuse(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        elif not is_deletable:
            refuse(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
        elif found.topic_id in doomed or found.topic_id in duplicate_ids:
            doomed.pop(found.topic_id, None)
            why = "The provided topic name maps to an ID that was already supplied."
            refuse(name, found.topic_id, ErrorCode.INVALID_REQUEST, why)
        else:
            doomed[found.topic_id] = name
    return doomed


class _DeletionRights:
    """What a client may do to topics that it wants to delete: DELETE on the cluster lets it delete and describe all."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._has_all = access.is_open or access.allows_on_cluster(AclOperation.DELETE, is_logged=False)

    def of(self, name: str) -> tuple[bool, bool]:
        """Whether the client may describe the topic, and whether it may delete it."""
        if self._has_all:
            return True, True
        allows = self._access.allows
        return allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name), allows(AclOperation.DELETE, ResourceType.TOPIC, name)


def failed_deletion(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
