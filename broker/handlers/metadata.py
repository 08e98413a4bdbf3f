"""Metadata (key 3). Serves v0–v13.

Behaviour:
- Tells the brokers that are alive, each with its address on the listener that the request came by, and the asked topics.
- An unknown topic is answered with UNKNOWN_TOPIC_OR_PARTITION; where the client and auto.create.topics.enable allow it, its
  creation begins meanwhile (the client asks again). A bad name is INVALID_TOPIC_EXCEPTION, an unknown id UNKNOWN_TOPIC_ID.
- Authorized operations, when asked for, are all of them: there is no authorizer.
- The controller is this broker: any broker takes admin requests.

Version notes: v0 no topics means all topics; v1+ null means all, none means none. v0 hides replicas that are not alive and answers
REPLICA_NOT_AVAILABLE; up to v5 a leader without this listener is LEADER_NOT_AVAILABLE, then LISTENER_NOT_FOUND. v4 auto-creation by
choice. v7 leader epochs. v10 topic ids in responses; v12 requests by topic id. v13 top-level error (REBOOTSTRAP_REQUIRED is never sent).

Source: KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache (KIP-430, KIP-516, KIP-1102).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import Handler, RequestContext, Services
from broker.metadata.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from broker.metadata.listener_view import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, OPERATIONS_NOT_ASKED, ListenerView
from broker.metadata.topic_names import find_name_fault
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.uuids import ZERO_UUID

NO_LEADER_ID = -1
FIRST_VERSION_WITH_IDS = 12


def build(services: Services) -> Handler:
    cache, controller = services.metadata, services.controller
    auto_create_is_enabled = services.config.auto_create_topics_enable

    def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        version = context.api_version
        wants_all = request.topics is None or (version == 0 and not request.topics)
        view = ListenerView(cache, context.listener_name)
        topics: list[MetadataResponseTopic] = []
        missing: list[str] = []
        if wants_all:
            topics.extend(_topic(view, topic, version) for topic in cache.topics.values())
        elif request.topics:
            _check_form(request, version)
            ids = [topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID]
            if ids:
                # As in Kafka, one id makes it a request by ids: names in it are passed over.
                for topic_id in dict.fromkeys(ids):
                    by_id = cache.find_topic_by_id(topic_id)
                    topics.append(_unknown_id(topic_id) if by_id is None else _topic(view, by_id, version))
            else:
                for name in dict.fromkeys(topic.name or "" for topic in request.topics):
                    by_name = cache.find_topic(name)
                    if by_name is None:
                        missing.append(name)
                    else:
                        topics.append(_topic(view, by_name, version))
        if missing:
            if auto_create_is_enabled and request.allow_auto_topic_creation:
                errors = controller.auto_create(missing, context)
            else:
                errors = {name: _missing_error(name) for name in missing}
            topics.extend(_error_topic(name, error) for name, error in errors.items())
        if request.include_topic_authorized_operations:
            for topic in topics:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
        return MetadataResponse(
            brokers=_brokers(view),
            cluster_id=cache.cluster_id,
            controller_id=cache.controller_id,
            topics=topics,
            cluster_authorized_operations=(
                ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
            ),
        )

    return handle


def error_response(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """The error for each asked topic: older versions have no place for one of the whole request."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or []
        ],
        error_code=error.code,
    )


def _check_form(request: MetadataRequest, version: int) -> None:
    if version >= FIRST_VERSION_WITH_IDS:
        return
    for topic in request.topics or []:
        if topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
        if topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}")


def _brokers(view: ListenerView) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in view.alive.values():
        host, port = view.endpoint(broker)
        brokers.append(MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack))
    return brokers


def _topic(view: ListenerView, topic: TopicImage, version: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(view, index, partition, version) for index, partition in enumerate(topic.partitions)],
    )


def _partition(view: ListenerView, index: int, partition: PartitionImage, version: int) -> MetadataResponsePartition:
    replicas: Sequence[int] = partition.replicas
    isr: Sequence[int] = partition.isr
    if version == 0:
        replicas = [replica for replica in replicas if replica in view.alive]
        isr = [replica for replica in isr if replica in view.alive]
    leader = view.find_leader(partition)
    error = ErrorCode.NONE
    if leader is None:
        error = view.missing_leader_error(partition) if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=NO_LEADER_ID if leader is None else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=view.offline_replicas(partition),
    )


def _missing_error(name: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if find_name_fault(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION


def _error_topic(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def _unknown_id(topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
