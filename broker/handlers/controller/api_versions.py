"""ApiVersions (key 18) on controller listeners. Serves v0–v4.

Behaviour: as on client listeners (broker/handlers/api_versions.py), but it tells the controller's APIs.

Source: ControllerApis.handleApiVersionsRequest, SimpleApiVersionManager.
"""

from __future__ import annotations

from broker.handlers.api_versions import build_for
from broker.services import Handler, Services
from protocol.apis import ListenerKind


def build(services: Services) -> Handler:
    return build_for(ListenerKind.CONTROLLER)
