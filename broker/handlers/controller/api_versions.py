"""ApiVersions (key 18) on controller listeners. Serves v0–v4.

Behaviour: as on client listeners (broker/handlers/cluster/api_versions.py), but it tells the controller's APIs. A leader asks a newcomer
for its range of kraft.version before it becomes a voter (KIP-853).

Version notes: v3 features, but only those whose minimum is above 0; v4 the others.

Source: ControllerApis.handleApiVersionsRequest, SimpleApiVersionManager, QuorumFeatures.
"""

from __future__ import annotations

from broker.handlers.cluster.api_versions import build_for
from broker.handlers.services import ControllerServices, Handler
from protocol.apis import ListenerKind


def build(services: ControllerServices) -> Handler:
    return build_for(ListenerKind.CONTROLLER, services.metadata, lambda: services.quorum.kraft_version)
