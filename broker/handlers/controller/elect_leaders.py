"""ElectLeaders (key 43) on controller listeners. Serves v0–v2.

Behaviour: as on listeners for clients. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once the
records are committed.

Source: ControllerApis.handleElectLeaders.
"""

from __future__ import annotations

from broker.handlers.cluster.elect_leaders import answered, error_response
from broker.handlers.services import ControllerServices, Handler
from broker.loop.turns import Work
from broker.network.context import RequestContext
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse | Work:
        return await answered(services.controller.elect_leaders(request, context), context, request)

    return handle
