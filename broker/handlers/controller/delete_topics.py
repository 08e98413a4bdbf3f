"""DeleteTopics (key 20) on controller listeners. Serves v1–v6.

Behaviour: topics are deleted. The broker that forwards it is answered as its client would be. NOT_CONTROLLER where this node does not
lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleDeleteTopics.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.handlers.topics.delete_topics import error_response
from broker.network.context import RequestContext
from protocol.messages.delete_topics import DeleteTopicsRequest

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: DeleteTopicsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.delete_topics(request, context.api_version, context)

    return handle
