"""RemoveRaftVoter (key 81) on controller listeners. Serves v0.

Behaviour: a voter leaves the quorum (KIP-853). The quorum's replica in this node answers (broker/quorum/).

Source: RemoveVoterHandler.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
