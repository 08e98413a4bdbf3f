"""Metadata (key 3). Serves v0–v13.

Behaviour:
- Tells the brokers that are alive, each with its address on the listener that the request came by, and the asked topics.
- An unknown topic is answered with UNKNOWN_TOPIC_OR_PARTITION; where the client and auto.create.topics.enable allow it, its
  creation begins meanwhile (the client asks again). A bad name is INVALID_TOPIC_EXCEPTION, an unknown id UNKNOWN_TOPIC_ID.
- A leader whose connection to this broker has just ended is not named (LEADER_NOT_AVAILABLE), and a broker that was just fenced is
  listed a little longer: see broker/metadata/unreachable_brokers.py.
- Topics that the client may not DESCRIBE are TOPIC_AUTHORIZATION_FAILED, whether they exist or not; of all topics they are left out. So are
  new ones without CREATE on the cluster or the topic.
- Authorized operations are told when asked for: of the cluster, to who may DESCRIBE it, and of the topics.
- The controller is this broker: any broker takes admin requests.

Version notes: v0 no topics means all topics; v1+ null means all, none means none. v0 hides replicas that are not alive and answers
REPLICA_NOT_AVAILABLE; up to v5 a leader without this listener is LEADER_NOT_AVAILABLE, then LISTENER_NOT_FOUND. v4 auto-creation by
choice. v7 leader epochs. v10 topic ids in responses; v12 requests by topic id. v13 top-level error (REBOOTSTRAP_REQUIRED is never sent).

Source: KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache (KIP-430, KIP-516, KIP-1102).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns, in_turns_if_many
from broker.metadata.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from broker.metadata.listener_view import OPERATIONS_NOT_ASKED, ListenerView
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.topic_names import find_name_fault
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from broker.cluster.controller_client import ControllerClient

NO_LEADER_ID = -1
FIRST_VERSION_WITH_IDS = 12
LOOKED_AT_TOPICS_MAX = 10
"""Whether leaders are there is looked at for requests of so few topics: a client that has lost a leader asks for few."""
LOOKED_AT_PARTITIONS_MAX = 100
"""Of each of these topics; the others have the same leaders."""

Asked = TypeVar("Asked", str, bytes)


def build(services: Services) -> Handler:
    cache, controller, unreachable_brokers = services.metadata, services.controller, services.unreachable_brokers
    auto_create_is_enabled = services.config.auto_create_topics_enable

    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        return at_once_or_in_turns(_answer(context, request))

    def _answer(context: RequestContext, request: MetadataRequest) -> Work:
        version, access = context.api_version, context.access
        view = ListenerView(cache, context.connection.listener.name, unreachable_brokers)
        topics: list[MetadataResponseTopic] = []
        refused: list[MetadataResponseTopic] = []

        if request.topics is None or (version == 0 and not request.topics):
            for topic in list(cache.topics.values()):
                if access.is_open or access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, is_logged=False):
                    yield from _describe(view, topic, version, topics)
                else:
                    yield
        else:
            names, ids = _asked(request, version)
            if unreachable_brokers is not None and len(names) <= LOOKED_AT_TOPICS_MAX:
                looking = unreachable_brokers.probe(_leaders(cache, names))
                if looking is not None:
                    yield looking
                    view = ListenerView(cache, context.connection.listener.name, unreachable_brokers)
            if ids:
                # One id makes it a request by ids, as in Kafka: names in it are passed over.
                allowed_ids = ids if access.is_open else (yield from _allowed_ids(cache, access, ids, refused))
                yield from _answer_asked(view, allowed_ids, cache.find_topic_by_id, version, topics, _unknown_id)
            else:
                allowed = names if access.is_open else (yield from _allowed_names(access, names, refused))
                is_creating = auto_create_is_enabled and request.allow_auto_topic_creation
                answer_missing = _creator(context, controller) if is_creating else _missing
                yield from _answer_asked(view, allowed, cache.find_topic, version, topics, answer_missing)
        if request.include_topic_authorized_operations:
            for answer in topics:
                if answer.name is not None and answer.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    answer.topic_authorized_operations = access.authorized_operations(ResourceType.TOPIC, answer.name)
                    yield
        return _response(cache, view, access, request, topics + refused)

    return handle


def _leaders(cache: MetadataCache, names: Iterable[str]) -> set[int]:
    """The leaders of the first partitions of these topics."""
    topics = (cache.find_topic(name) for name in names)
    return {partition.leader for topic in topics if topic is not None for partition in topic.partitions[:LOOKED_AT_PARTITIONS_MAX]}


def error_response(request: MetadataRequest, error: KafkaError) -> Any:
    """The error for each asked topic: older versions have no place for one of the whole request."""
    topics = [
        MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or ()
    ]
    return in_turns_if_many(MetadataResponse(topics=topics, error_code=error.code), [topics])


def _allowed_names(access: Access, names: list[str], refused: list[MetadataResponseTopic]) -> Generator[None, None, list[str]]:
    """Returns the names of topics that the client may DESCRIBE. Whether the others exist is not told in their answers, which are added to
    `refused`."""
    allowed: list[str] = []
    for name in names:
        if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            allowed.append(name)
        else:
            refused.append(MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
        yield
    return allowed


def _allowed_ids(
    cache: MetadataCache, access: Access, ids: list[bytes], refused: list[MetadataResponseTopic]
) -> Generator[None, None, list[bytes]]:
    """The same for ids. Kafka does not take them for a secret."""
    allowed: list[bytes] = []
    for topic_id in ids:
        topic = cache.find_topic_by_id(topic_id)
        if topic is None or access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            allowed.append(topic_id)
        else:
            refused.append(MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id))
        yield
    return allowed


def _creator(context: RequestContext, controller: ControllerClient) -> Callable[[str], MetadataResponseTopic]:
    """Returns a function that begins to create a topic, if the client may CREATE it, and returns its answer."""
    may_create_all: bool | None = None

    def create(name: str) -> MetadataResponseTopic:
        nonlocal may_create_all
        if may_create_all is None:
            may_create_all = context.access.allows_on_cluster(AclOperation.CREATE, is_logged=False)
        if not may_create_all and not context.access.allows(AclOperation.CREATE, ResourceType.TOPIC, name):
            return _error_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _error_topic(name, controller.auto_create([name], context)[name])

    return create


def _response(
    cache: MetadataCache, view: ListenerView, access: Access, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    return MetadataResponse(
        brokers=_brokers(view),
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            access.cluster_operations() if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _asked(request: MetadataRequest, version: int) -> tuple[list[str], list[bytes]]:
    """The names and ids that are asked for, each once. Raises KafkaError INVALID_REQUEST for what the version does not allow."""
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    for topic in request.topics or ():
        if version < FIRST_VERSION_WITH_IDS:
            if topic.name is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
            if topic.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}")
        if topic.topic_id == ZERO_UUID:
            names[topic.name or ""] = None
        else:
            ids[topic.topic_id] = None
    return list(names), list(ids)


def _answer_asked(
    view: ListenerView,
    asked: Sequence[Asked],
    find_topic: Callable[[Asked], TopicImage | None],
    version: int,
    topics: list[MetadataResponseTopic],
    answer_missing: Callable[[Asked], MetadataResponseTopic],
) -> Work:
    """Append to `topics` an answer for each name or id: the topics that are there first."""
    missing = []
    for key in asked:
        topic = find_topic(key)
        if topic is None:
            missing.append(key)
            yield
        else:
            yield from _describe(view, topic, version, topics)
    for key in missing:
        topics.append(answer_missing(key))
        yield


def _describe(view: ListenerView, topic: TopicImage, version: int, answers: list[MetadataResponseTopic]) -> Work:
    """Append the answer for `topic`."""
    answer = MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=[])
    answers.append(answer)
    yield
    for index, partition in enumerate(topic.partitions):
        answer.partitions.append(_partition(view, index, partition, version))
        yield


def _brokers(view: ListenerView) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in view.listed():
        host, port = view.endpoint(broker)
        brokers.append(MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack))
    return brokers


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


def _missing(name: str) -> MetadataResponseTopic:
    return _error_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if find_name_fault(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _error_topic(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def _unknown_id(topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
