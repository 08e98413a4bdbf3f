"""Vote (key 52) on controller listeners. Serves v0–v2.

Behaviour: a vote or a pre-vote (KIP-996) for a candidate of the metadata quorum. The quorum's replica in this node answers
(broker/quorum/).

Source: KafkaRaftClient.handleVoteRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.vote import VoteRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: VoteRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
