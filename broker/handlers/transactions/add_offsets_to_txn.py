"""AddOffsetsToTxn (key 25): add a group's partition of `__consumer_offsets` to a transaction. Serves v0–v4.

Behaviour:
- As AddPartitionsToTxn with that partition, by a client that follows transaction version 0 or 1. From version 2 on TxnOffsetCommit adds it.
- TRANSACTIONAL_ID_AUTHORIZATION_FAILED without WRITE on the id, GROUP_AUTHORIZATION_FAILED without READ on the group.
- `__consumer_offsets` is created at its first use. Until it exists the answer is COORDINATOR_NOT_AVAILABLE, which clients retry. Kafka adds
a partition that does not exist.

Version notes: v2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before.

Source: KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from typing import Any

from broker.groups.replies import mapped
from broker.handlers.services import Handler, Services
from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

VERSION_PRODUCER_FENCED = 2
CLIENT_TRANSACTION_VERSION = 0


def build(services: Services) -> Handler:
    coordinator = services.transaction_coordinator
    assert coordinator is not None, "the API is served where there is a coordinator"
    groups, metadata, controller = services.group_coordinator, services.metadata, services.controller
    wait_max_ms = services.config.add_partitions_to_txn_retry_backoff_max_ms

    def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> Any:
        context.access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if metadata.find_topic(GROUP_METADATA_TOPIC) is None:
            controller.ensure_internal_topic(GROUP_METADATA_TOPIC)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        partitions = {GROUP_METADATA_TOPIC: {groups.partition_for(request.group_id)}}
        addition = AddPartitions(producer, partitions, CLIENT_TRANSACTION_VERSION)
        added = coordinator.add_partitions(request.transactional_id, addition, wait_max_ms)
        return mapped(added, lambda error: AddOffsetsToTxnResponse(error_code=_for_client(error, context.api_version)))

    return handle


def _for_client(error: ErrorCode, version: int) -> ErrorCode:
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < VERSION_PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


def error_response(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)
