"""FetchSnapshot (key 59) on controller listeners. Serves v0–v1.

Behaviour: a replica that is far behind fetches a part of a snapshot (KIP-630). The quorum's replica in this node answers
(broker/quorum/).

Source: KafkaRaftClient.handleFetchSnapshotRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import RequestContext
from protocol.messages.fetch_snapshot import FetchSnapshotRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: FetchSnapshotRequest) -> Deferred:
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
