"""SyncGroup (key 14): the leader of a classic group sends the assignment, and every member gets its part.

Serves v0–v5.

Behaviour:
- Answered when the leader's assignment is stored in `__consumer_offsets`; members without a part get an empty one.
- More than 8 MB of assignments: UNKNOWN_SERVER_ERROR, as for a record that the topic does not take, and the group rebalances.
- In the join phase REBALANCE_IN_PROGRESS; another generation is ILLEGAL_GENERATION.
- In a KIP-848 group the coordinator assigns: a sent assignment is ignored, and the answer does not wait for others.

Version notes:
- v3: static members (KIP-345).
- v5: protocol type and name must be given and must be the group's, else INCONSISTENT_GROUP_PROTOCOL (KIP-559).
"""

from __future__ import annotations

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

VERSION_PROTOCOL_REQUIRED = 5


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Deferred:
        is_protocol_given = request.protocol_type is not None and request.protocol_name is not None
        if context.api_version >= VERSION_PROTOCOL_REQUIRED and not is_protocol_given:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        context.access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        try:
            return coordinator.sync(request)
        except KafkaError as e:
            return SyncGroupResponse(error_code=e.code)

    return handle
