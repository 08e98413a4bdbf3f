"""Heartbeat (key 12): a member with the classic protocol reports that it is alive.

Serves v0–v4.

Behaviour:
- Restarts the member's session timeout. REBALANCE_IN_PROGRESS makes it join again; in the sync phase the answer is NONE.
- In a KIP-848 group REBALANCE_IN_PROGRESS also means that the member has to revoke partitions, or can get new ones.
- Answered when everything that the coordinator appended before is committed: the answer depends on it.
- While the coordinator loads, the answer is NONE: an error would make the member rejoin and cause a needless rebalance.

Version notes:
- v3: static members (KIP-345), FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Deferred:
        context.access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        try:
            return coordinator.heartbeat(request)
        except KafkaError as e:
            return HeartbeatResponse(error_code=e.code)

    return handle
