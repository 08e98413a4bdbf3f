"""EndQuorumEpoch (key 54) on controller listeners. Serves v0–v1.

Behaviour: the leader of the metadata quorum resigns and names its successors. The quorum's replica in this node answers (broker/quorum/).

Source: KafkaRaftClient.handleEndQuorumEpochRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: EndQuorumEpochRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
