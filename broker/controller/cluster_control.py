"""The controller's decisions about the cluster itself: its first records, and blocks of producer ids. Pure.

Source: ActivationRecordsGenerator, ProducerIdControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.controller.controller_result import ControllerResult
from broker.controller.elections import MIN_IN_SYNC_REPLICAS
from broker.metadata.cluster_state import RESOURCE_BROKER, ClusterState
from broker.metadata.features import ELR_FEATURE
from broker.metadata.image import ProducerIdBlock
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    EndTransactionRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterControllerRecord,
)

if TYPE_CHECKING:
    from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse

CONTROLLER_REGISTRATION_LEVEL = 15
"""3.7-IV0."""

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1


def activation_records(state: ClusterState, bootstrap: Sequence[Any], min_isr: int) -> list[Any]:
    """The records that a new leader of the log writes first: the end of an unfinished transaction, and a new cluster's first records.

    `min_isr` is the controller's own min.insync.replicas: with eligible leader replicas it is the cluster's."""
    records: list[Any] = []
    if state.is_in_transaction:
        records.append(AbortTransactionRecord(reason="controller failover"))
    if not state.features and bootstrap:
        records += [BeginTransactionRecord(name="Bootstrap records"), *bootstrap]
        if any(isinstance(each, FeatureLevelRecord) and each.name == ELR_FEATURE and each.feature_level > 0 for each in bootstrap):
            records += elr_safety_records(state, min_isr)
        records.append(EndTransactionRecord())
    return records


def elr_safety_records(state: ClusterState, min_isr: int) -> list[ConfigRecord]:
    """The records written before eligible leader replicas are enabled: they give all brokers the same min.insync.replicas (KIP-966).

    Source: ConfigurationControlManager.maybeGenerateElrSafetyRecords."""
    records = []
    if MIN_IN_SYNC_REPLICAS not in state.broker_overrides(""):
        records.append(ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name=MIN_IN_SYNC_REPLICAS, value=str(min_isr)))
    for (kind, name), configs in state.configs.items():
        if kind == RESOURCE_BROKER and name and MIN_IN_SYNC_REPLICAS in configs:
            records.append(ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=name, name=MIN_IN_SYNC_REPLICAS, value=None))
    return records


def producer_id_block(state: ClusterState, *, node_id: int, broker_epoch: int) -> tuple[ProducerIdBlock, list[Any]]:
    """Returns the next block of producer ids and the record that assigns it. Raises KafkaError when there are no ids left."""
    first = state.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        )
    record = ProducerIdsRecord(broker_id=node_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE)
    return ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE), [record]


def controller_registration(
    state: ClusterState, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """The record of a controller's endpoints and supported features (KIP-919)."""
    from protocol.messages.controller_registration import ControllerRegistrationResponse

    if state.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller registrations.")
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name, min_supported_version=each.min_supported_version, max_supported_version=each.max_supported_version
            )
            for each in request.features
        ],
    )
    return ControllerResult([record], ControllerRegistrationResponse(error_message=None))
