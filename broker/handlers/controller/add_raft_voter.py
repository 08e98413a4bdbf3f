"""AddRaftVoter (key 80) on controller listeners. Serves v0–v1.

Behaviour: a caught-up observer becomes a voter (KIP-853). The quorum's replica in this node answers (broker/quorum/).

Source: AddVoterHandler.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.add_raft_voter import AddRaftVoterRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: AddRaftVoterRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
