"""BeginQuorumEpoch (key 53) on controller listeners. Serves v0–v1.

Behaviour: a new leader of the metadata quorum makes itself known. The quorum's replica in this node answers (broker/quorum/).

Source: KafkaRaftClient.handleBeginQuorumEpochRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: BeginQuorumEpochRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
