"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, stays alive, gets partitions, and leaves.

Serves v0–v1.

Behaviour:
- Epoch 0 joins, -1 leaves, -2 is a static member that leaves temporarily. Other heartbeats are answered with the member's epoch and, if it
has changed, its assignment, without the partitions that it must revoke.
- GROUP_AUTHORIZATION_FAILED without READ on the group, TOPIC_AUTHORIZATION_FAILED without DESCRIBE on a topic that is subscribed to by
  name. Regular expressions match what the client may DESCRIBE.
- Answered when the heartbeat's changes are committed.
- Epoch 0 converts a classic group, with its members, to a KIP-848 group if the members are consumers and `group.consumer.migration.policy`
allows it; else GROUP_ID_NOT_FOUND.
- Topics of a regular expression (RE2's syntax, for the whole name) are resolved after the answer: a later heartbeat brings their
partitions. INVALID_REGULAR_EXPRESSION for one that is invalid, has more than 4,000 characters or would be slow.
- UNSUPPORTED_VERSION while group.version is finalized at 0, or `group.coordinator.rebalance.protocols` lacks `consumer`.

Version notes:
- v0: the coordinator creates a member id if there is none. v1: members create their own (KIP-1082); subscribed_topic_regex.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.groups.client_info import ClientInfo
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Any:
        if not coordinator.has_consumer_protocol:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        access = context.access
        refusal = access.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if refusal:
            return ConsumerGroupHeartbeatResponse(error_code=refusal)
        if access.is_open or not request.subscribed_topic_names:
            return heartbeat(context, request)
        return at_once_or_in_turns(_with_names_checked(context, request))

    def _with_names_checked(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Work:
        is_any_denied = False
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            is_any_denied |= not context.access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            yield
        if is_any_denied:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return heartbeat(context, request)

    def heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | Deferred:
        try:
            client = client_info(context)
            return coordinator.consumer_group_heartbeat(client, request)
        except KafkaError as e:
            return error_response(request, e)

    return handle


def client_info(context: RequestContext) -> ClientInfo:
    """The client as the group coordinator knows it."""
    access = context.access
    may_describe = None if access.is_open else partial(_may_describe, access)
    return ClientInfo(context.api_version, context.client_id, context.connection.client_host, may_describe)


def _may_describe(access: Access, name: str) -> bool:
    return access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_logged=False)


def error_response(request: ConsumerGroupHeartbeatRequest, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
