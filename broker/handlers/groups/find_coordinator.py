"""FindCoordinator (key 10): find the coordinator of a group or of a transactional id.

Serves v0–v6.

Behaviour:
- The leader of the group's partition of `__consumer_offsets`, or of the transactional id's of `__transaction_state`, at its address on the
client's listener.
- GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED without DESCRIBE on the key.
- The topic is created at its first use. Until the partition has a leader, the answer is COORDINATOR_NOT_AVAILABLE, which clients retry.

Version notes:
- v1: key types. v4: several keys, each with its own answer (KIP-699).
- v6: share groups; not served, so key type 2 is INVALID_REQUEST, as without a share coordinator in Kafka.

Source: KafkaApis.handleFindCoordinatorRequest, getCoordinator.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from broker.handlers.services import Handler, Services
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns, make_in_turns
from broker.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker.network.context import RequestContext
from broker.security.authorizer.access import AUTHORIZATION_MESSAGES
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

VERSION_BATCH = 4
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1


RESOURCES = {GROUP_KEY_TYPE: ResourceType.GROUP, TRANSACTION_KEY_TYPE: ResourceType.TRANSACTIONAL_ID}
"""What needs DESCRIBE, by key type."""


class _Found(NamedTuple):
    node_id: int
    host: str
    port: int


def build(services: Services) -> Handler:
    groups = services.group_coordinator
    transactions = services.transaction_coordinator
    assert transactions is not None, "the API is served where there is a coordinator"
    coordinators = {
        GROUP_KEY_TYPE: (GROUP_METADATA_TOPIC, groups.partition_for),
        TRANSACTION_KEY_TYPE: (TRANSACTION_STATE_TOPIC, transactions.partition_for),
    }
    metadata = services.metadata
    controller = services.controller

    def handle(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        if context.api_version >= VERSION_BATCH:
            return at_once_or_in_turns(_answer_keys(context, request), IDS_AT_ONCE)
        answer = _answer_key(context, request, request.key)
        return FindCoordinatorResponse(
            error_code=answer.error_code,
            error_message=answer.error_message or ErrorCode(answer.error_code).name,
            node_id=answer.node_id,
            host=answer.host,
            port=answer.port,
        )

    def _answer_keys(context: RequestContext, request: FindCoordinatorRequest) -> Work:
        answers = yield from make_in_turns(lambda key: _answer_key(context, request, key), request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=answers)

    def _answer_key(context: RequestContext, request: FindCoordinatorRequest, key: str) -> Coordinator:
        try:
            found = _find(context, request.key_type, key)
        except KafkaError as e:
            return _error_answer(key, e)
        return Coordinator(key=key, node_id=found.node_id, host=found.host, port=found.port)

    def _find(context: RequestContext, key_type: int, key: str) -> _Found:
        if key_type not in coordinators:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} are not supported.")
        refusal = context.access.refusal(AclOperation.DESCRIBE, RESOURCES[key_type], key)
        if refusal:
            raise KafkaError(refusal, AUTHORIZATION_MESSAGES[refusal] if context.api_version < VERSION_BATCH else None)
        name, partition_for = coordinators[key_type]
        if metadata.find_topic(name) is None:
            controller.ensure_internal_topic(name)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = metadata.find_partition(name, partition_for(key))
        broker = None if partition is None else metadata.brokers.get(partition.leader)
        endpoint = None if broker is None or broker.is_fenced else broker.endpoints.get(context.connection.listener.name)
        if broker is None or endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _Found(broker.node_id, *endpoint)

    return handle


def error_response(request: FindCoordinatorRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: FindCoordinatorRequest, error: KafkaError) -> Generator[None, None, FindCoordinatorResponse]:
    if request.coordinator_keys:
        answers = yield from make_in_turns(lambda key: _error_answer(key, error), request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=answers)
    return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, port=-1)


def _error_answer(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or "")
