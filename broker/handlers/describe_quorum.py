"""DescribeQuorum (key 55). Serves v0–v2.

Behaviour: the leader of the metadata quorum answers: who votes, who observes, and how far each is (broker/handlers/controller/).

Version notes: v1 when each replica fetched and was caught up. v2 directory ids, and where voters are reached.

Source: KafkaApis.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.context import RequestContext
from broker.services import Handler, Services
from protocol.messages.describe_quorum import DescribeQuorumRequest


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: DescribeQuorumRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.ask_quorum(request, context)

    return handle
