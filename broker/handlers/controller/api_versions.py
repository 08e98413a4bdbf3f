"""ApiVersions (key 18) on controller listeners. Serves v0–v4.

Behaviour: as on client listeners (broker/handlers/api_versions.py), but it tells the controller's APIs, and the features that this node
supports: a leader asks a newcomer for its range of kraft.version before it becomes a voter (KIP-853).

Version notes: v3 features, but only those whose minimum is above 0; v4 the others.

Not done: finalized features.

Source: ControllerApis.handleApiVersionsRequest, SimpleApiVersionManager, QuorumFeatures.
"""

from __future__ import annotations

from broker.handlers.api_versions import build_for
from broker.metadata.features import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL, METADATA_VERSION_MIN
from broker.services import ControllerServices, Handler
from protocol.apis import ListenerKind
from protocol.messages.api_versions import SupportedFeatureKey

KRAFT_VERSION_FEATURE = "kraft.version"
KRAFT_VERSION_MAX = 1


def build(services: ControllerServices) -> Handler:
    return build_for(
        ListenerKind.CONTROLLER,
        [
            SupportedFeatureKey(name=KRAFT_VERSION_FEATURE, min_version=0, max_version=KRAFT_VERSION_MAX),
            SupportedFeatureKey(name=METADATA_VERSION_FEATURE, min_version=METADATA_VERSION_MIN, max_version=METADATA_VERSION_LEVEL),
        ],
    )
