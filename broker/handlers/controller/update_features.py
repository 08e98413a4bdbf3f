"""UpdateFeatures (key 57) on controller listeners. Serves v0–v2.

Behaviour: as on client listeners (broker/handlers/cluster/update_features.py). NOT_CONTROLLER where this node does not
lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleUpdateFeatures.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.cluster.update_features import check_updates_count
from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.update_features import UpdateFeaturesRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Coroutine[Any, Any, Any]:
        check_updates_count(request)
        return services.controller.update_features(request, context)

    return handle
