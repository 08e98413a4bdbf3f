"""AddRaftVoter (key 80). Serves v0–v1.

Behaviour: the leader of the metadata quorum adds a voter, which must fetch from it already (KIP-853). A node without a controller listener
refuses: no other node could reach it.

Version notes: v1 may be answered before the change is committed.

Source: ForwardingManager, KafkaRaftClient.handleAddVoterRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from protocol.messages.add_raft_voter import AddRaftVoterRequest


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: AddRaftVoterRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.ask_quorum(request, context)

    return handle
