"""UpdateRaftVoter (key 82) on controller listeners. Serves v0.

Behaviour: a voter tells the leader its addresses and its versions (KIP-853). The quorum's replica in this node answers (broker/quorum/).

Source: UpdateVoterHandler.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: UpdateRaftVoterRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
