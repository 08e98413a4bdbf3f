"""CreateTopics (key 19) on controller listeners. Serves v2–v7.

Behaviour: topics are created. The broker that forwards it is answered as its client would be. NOT_CONTROLLER where this node does not
lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleCreateTopics.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler
from broker.handlers.topics.create_topics import answer, error_response
from broker.loop.turns import Work
from broker.network.context import RequestContext
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | Work:
        return answer(await services.controller.create_topics(request, context))

    return handle
