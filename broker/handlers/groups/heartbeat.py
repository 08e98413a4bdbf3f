"""Heartbeat (key 12): a member that speaks the classic protocol is alive.

Serves v0–v4.

Behaviour:
- Restarts the member's session timeout. REBALANCE_IN_PROGRESS tells it to join again; in the sync phase it is told nothing.
- In a KIP-848 group REBALANCE_IN_PROGRESS also means that there are partitions to give up, or that some have become free.
- Told when what the coordinator appended before is committed: it was computed on that.
- While the coordinator loads, NONE: sending the member to rejoin would cost a rebalance for nothing.

Version notes:
- v3: static members (KIP-345), FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Deferred:
        try:
            return coordinator.heartbeat(request)
        except KafkaError as e:
            return HeartbeatResponse(error_code=e.code)

    return handle
