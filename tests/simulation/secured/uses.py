"""What an answer shows about rights: what was done with which right, and what was refused for want of which.

Only what the clients of simulated worlds ask for. An answer with another error shows nothing: brokers look at rights before most else,
but not before all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, ResourceType
from protocol.errors import ErrorCode

ANY_NAME = None
_GROUP_READ_APIS = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"})
_TRANSACTION_APIS = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"})
_FORWARDED = frozenset({"CreateTopics", "DeleteTopics", "CreateAcls", "DescribeQuorum"})


class Right(NamedTuple):
    """`name` is None for any resource of the type."""

    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class Use(NamedTuple):
    """One of `rights` was needed. Not `is_served`: it was refused."""

    rights: tuple[Right, ...]
    is_served: bool


def is_forwarded(api: str) -> bool:
    """Whether the active controller decides, not the broker that is asked."""
    return api in _FORWARDED


def uses_of(api: str, request: Any, response: Any, *, is_of_controller: bool) -> Iterator[Use]:
    """What the answer to a request shows. `api` is its name. `is_of_controller`: it came by a listener of controllers."""
    if is_of_controller:  # which looks at rights before all else
        assert api == "DescribeQuorum", "nobody asks for more there"
        yield from _use((_on_cluster(AclOperation.DESCRIBE),), response.error_code, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif api == "Produce":
        if request.transactional_id is not None:
            for produced in response.responses:
                for partition in produced.partition_responses:
                    yield from _transaction(AclOperation.WRITE, request.transactional_id, partition.error_code)
        for produced in response.responses:
            for partition in produced.partition_responses:
                yield from _topic(AclOperation.WRITE, produced.name, partition.error_code)
    elif api == "Fetch":
        for fetched in response.responses:
            for each in fetched.partitions:
                yield from _topic(AclOperation.READ, fetched.topic, each.error_code)
    elif api == "ListOffsets":
        for listed in response.topics:
            for each in listed.partitions:
                yield from _topic(AclOperation.DESCRIBE, listed.name, each.error_code)
    elif api == "Metadata":
        for topic in response.topics:
            yield from _topic(AclOperation.DESCRIBE, topic.name, topic.error_code)
    elif api == "InitProducerId" and request.transactional_id is not None:
        yield from _transaction(AclOperation.WRITE, request.transactional_id, response.error_code)
    elif api == "InitProducerId":
        rights = Right(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME), _any_topic()
        yield from _use(rights, response.error_code, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif api == "FindCoordinator":
        asked = _group if request.key_type == 0 else _transaction
        yield from asked(AclOperation.DESCRIBE, request.key, response.error_code)
    elif api in _GROUP_READ_APIS:
        yield from _group(AclOperation.READ, request.group_id, response.error_code)
    elif api == "OffsetCommit":
        yield from _commit(request, response)
    elif api == "OffsetFetch":
        yield from _offset_fetch(request, response)
    elif api in _FORWARDED:
        yield from _of_controller(api, response)
    elif api in _TRANSACTION_APIS:
        yield from _of_transaction(api, request, response)


def _of_transaction(api: str, request: Any, response: Any) -> Iterator[Use]:
    if api == "EndTxn":
        yield from _transaction(AclOperation.WRITE, request.transactional_id, response.error_code)
    elif api == "AddOffsetsToTxn":
        yield from _transaction(AclOperation.WRITE, request.transactional_id, response.error_code)
        yield from _group(AclOperation.READ, request.group_id, response.error_code)
    elif api == "TxnOffsetCommit":
        for topic in response.topics:
            for each in topic.partitions:
                yield from _transaction(AclOperation.WRITE, request.transactional_id, each.error_code)
                yield from _group(AclOperation.READ, request.group_id, each.error_code)
                yield from _topic(AclOperation.READ, topic.name, each.error_code)
    else:
        for topic in response.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                yield from _transaction(AclOperation.WRITE, request.v3_and_below_transactional_id, each.partition_error_code)
                yield from _topic(AclOperation.WRITE, topic.name, each.partition_error_code)


def _of_controller(api: str, response: Any) -> Iterator[Use]:
    if api == "CreateTopics":
        for topic in response.topics:
            rights = _on_cluster(AclOperation.CREATE), _on_topic(AclOperation.CREATE, topic.name)
            yield from _use(rights, topic.error_code, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif api == "DeleteTopics":
        for topic in response.responses:
            rights = _on_cluster(AclOperation.DELETE), _on_topic(AclOperation.DELETE, topic.name)
            yield from _use(rights, topic.error_code, None)  # who may not describe it either is told otherwise
    elif api == "CreateAcls":
        for result in response.results:
            yield from _use((_on_cluster(AclOperation.ALTER),), result.error_code, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    else:
        error = response.error_code or next((each.error_code for topic in response.topics for each in topic.partitions), 0)
        yield from _use((_on_cluster(AclOperation.DESCRIBE),), error, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _commit(request: Any, response: Any) -> Iterator[Use]:
    for topic in response.topics:
        for each in topic.partitions:
            yield from _topic(AclOperation.READ, topic.name, each.error_code)
            yield from _group(AclOperation.READ, request.group_id, each.error_code)


def _offset_fetch(request: Any, response: Any) -> Iterator[Use]:
    if response.groups:
        answers = [(group.group_id, group.error_code, group.topics) for group in response.groups]
    else:
        answers = [(request.group_id, response.error_code, response.topics)]
    for group_id, error, topics in answers:
        yield from _group(AclOperation.DESCRIBE, group_id, error)
        for topic in topics:
            for each in topic.partitions:
                yield from _topic(AclOperation.DESCRIBE, topic.name, each.error_code)


def _topic(operation: AclOperation, name: str, error: int) -> Iterator[Use]:
    return _use((_on_topic(operation, name),), error, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _group(operation: AclOperation, name: str, error: int) -> Iterator[Use]:
    return _use((Right(operation, ResourceType.GROUP, name),), error, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _transaction(operation: AclOperation, name: str, error: int) -> Iterator[Use]:
    return _use((Right(operation, ResourceType.TRANSACTIONAL_ID, name),), error, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _use(rights: tuple[Right, ...], error: int, refusal: ErrorCode | None) -> Iterator[Use]:
    if error in (ErrorCode.NONE, refusal):
        yield Use(rights, error == ErrorCode.NONE)


def _on_topic(operation: AclOperation, name: str) -> Right:
    return Right(operation, ResourceType.TOPIC, name)


def _on_cluster(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def _any_topic() -> Right:
    return Right(AclOperation.WRITE, ResourceType.TOPIC, ANY_NAME)
