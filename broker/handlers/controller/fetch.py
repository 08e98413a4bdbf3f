"""Fetch (key 1) on controller listeners. Serves v4–v18.

Behaviour: a replica of the metadata log fetches from its leader; the fetch is parked while there is nothing for it. The quorum's replica
in this node answers (broker/quorum/).

Source: KafkaRaftClient.handleFetchRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.fetch import FetchRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: FetchRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
