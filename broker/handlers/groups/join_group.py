"""JoinGroup (key 11): a member joins a classic group, or rejoins it for a rebalance.

Serves v0–v9.

Behaviour:
- Answered when the join phase ends; only the leader gets the list of members.
- A KIP-848 group answers at once and has no leader: the member's generation is its epoch. An empty one is converted to a classic group. So
is one whose last member with the consumer protocol is a static member that rejoins with the classic one.
- v4+ answers a dynamic member's first request with MEMBER_ID_REQUIRED and its member id (KIP-394).
- A session timeout outside group.min/max.session.timeout.ms is INVALID_SESSION_TIMEOUT, an empty group id INVALID_GROUP_ID, a full group
GROUP_MAX_SIZE_REACHED.
- More than 1,000 protocols, 4 MB of their names and metadata, or 16 MB of all members', are GROUP_MAX_SIZE_REACHED too.

Version notes:
- v1: rebalance_timeout_ms (before it the session timeout is used).
- v5: static members (KIP-345). v7: protocol_type; protocol_name may be null. v8: reason (KIP-800).
- v9: skip_assignment for a static leader that returns (KIP-814).
"""

from __future__ import annotations

from broker.groups.replies import mapped
from broker.handlers.groups.consumer_group_heartbeat import client_info
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSION_PROTOCOL_NAME_NULLABLE = 7


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Deferred:
        refusal = context.access.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if refusal:
            return _for_version(JoinGroupResponse(error_code=refusal), context.api_version)
        try:
            reply = coordinator.join(client_info(context), request)
        except KafkaError as e:
            return _for_version(JoinGroupResponse(error_code=e.code, member_id=request.member_id), context.api_version)
        return mapped(reply, lambda response: _for_version(response, context.api_version))

    return handle


def _for_version(response: JoinGroupResponse, api_version: int) -> JoinGroupResponse:
    if response.error_code:
        # No protocol was chosen: null in versions that allow it.
        response.protocol_name = None
    if response.protocol_name is None and api_version < VERSION_PROTOCOL_NAME_NULLABLE:
        response.protocol_name = ""
    return response
