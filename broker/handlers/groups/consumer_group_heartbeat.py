"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, stays alive, gets partitions, and leaves.

Serves v0–v1.

Behaviour:
- Epoch 0 joins, -1 leaves, -2 is a static member that leaves temporarily. Other heartbeats are answered with the member's epoch and, if it
has changed, its assignment, without the partitions that it must revoke.
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

from broker.groups.client_info import ClientInfo
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | Deferred:
        if not coordinator.has_consumer_protocol:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        client = ClientInfo(context.api_version, context.client_id, context.connection.client_host)
        try:
            return coordinator.consumer_group_heartbeat(client, request)
        except KafkaError as e:
            return error_response(request, e)

    return handle


def error_response(request: ConsumerGroupHeartbeatRequest, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
