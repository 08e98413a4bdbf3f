"""RemoveRaftVoter (key 81). Serves v0.

Behaviour: the leader of the metadata quorum removes a voter, itself included, but never the last (KIP-853).

Source: ForwardingManager, KafkaRaftClient.handleRemoveVoterRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.ask_quorum(request, context)

    return handle
