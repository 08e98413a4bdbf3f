"""DescribeQuorum (key 55) on controller listeners. Serves v0–v2.

Behaviour: the leader tells who votes, who observes, and how far each is. The quorum's replica in this node answers (broker/quorum/).

Version notes: v1 when each replica fetched and was caught up. v2 directory ids, and where voters are reached.

Source: KafkaRaftClient.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.cluster.describe_quorum import asks_for_the_metadata_log, refused
from broker.handlers.services import ControllerServices, Handler
from broker.loop.turns import at_once_or_in_turns
from broker.network.context import RequestContext
from protocol.messages.describe_quorum import DescribeQuorumRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: DescribeQuorumRequest) -> Any:
        if not asks_for_the_metadata_log(request):
            return at_once_or_in_turns(refused(request))
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
