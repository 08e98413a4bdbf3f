"""UpdateFeatures (key 57). Serves v0–v2.

Behaviour: the active controller finalizes levels of features, all of the requested ones or none: every registered node must support them.
kraft.version can only go up; metadata.version can go down if no metadata would be lost.

Version notes: v1 the kind of the change, and validate_only. Until v1 each feature has a result; from v2 on there is one for all.

Source: ControllerApis.handleUpdateFeatures, FeatureControlManager (KIP-584).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from protocol.messages.update_features import UpdateFeaturesRequest


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.update_features(request, context)

    return handle
