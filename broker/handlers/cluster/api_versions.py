"""ApiVersions (key 18). Serves v0–v4.

Behaviour:
- Lists the versions of every API that this kind of listener serves. Produce and JoinGroup are listed from 0, which old clients look for.
- A forwarded API is listed with the versions that broker and active controller both support, and left out if the controller does not serve
it.
- An unknown version is answered by dispatch in the layout of v0: UNSUPPORTED_VERSION and the versions of ApiVersions itself.
- Records the client's software name and version for the connection, if they are valid.
- Lists the supported features with their finalized levels, as of the end of the committed metadata. An unsupported feature is not listed,
even if another node has finalized it: clients then do not use share or streams groups.

Version notes: v3 the client's software; a name or version that is not made of letters, digits, dots and dashes is INVALID_REQUEST
(librdkafka then asks with v0). v4 features whose minimum is 0.

Source: KafkaApis.handleApiVersionsRequest, ApiVersionsRequest.isValid (KIP-35, KIP-511, KIP-584).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from broker.handlers.services import Handler, Services
from broker.metadata.features import KRAFT_VERSION_FEATURE, SUPPORTED
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from protocol.apis import API_VERSIONS_KEY, DECLARED, FORWARDABLE_KEYS, ListenerKind, apis_of
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey

FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_FEATURES_FROM_0 = 4

NO_VERSIONS = (0, -1)

TELEMETRY_KEYS = frozenset((71, 72))

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def build(services: Services) -> Handler:
    # Kafka lists these only if a plug-in receives clients' metrics; here it is the metrics endpoint.
    untold = TELEMETRY_KEYS if services.config.metrics_address is None else frozenset[int]()
    return build_for(
        ListenerKind.CLIENT,
        services.metadata,
        services.kraft_version,
        services.controller_versions,
        untold,
        is_unstable_enabled=services.config.unstable_api_versions_enable,
    )


def build_for(
    kind: ListenerKind,
    metadata: MetadataCache,
    kraft_version: Callable[[], int],
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None,
    untold: frozenset[int] = frozenset(),
    *,
    is_unstable_enabled: bool = False,
) -> Handler:
    """Returns the handler for one kind of listeners. `controller_versions()` returns the versions of the active controller; None if
    requests are not forwarded or the versions are unknown. `untold` are keys of APIs that are not listed. `is_unstable_enabled` is
    unstable.api.versions.enable."""
    api_keys = [
        ApiVersion(
            api_key=api.key,
            min_version=api.advertised_min_version,
            max_version=api.highest_version(is_unstable_enabled=is_unstable_enabled),
        )
        for api in sorted(apis_of(kind).values(), key=lambda api: api.key)
        if api.key not in untold
    ]
    # Built once: the contents of a response are not changed.
    supported = [SupportedFeatureKey(name=name, min_version=low, max_version=high) for name, (low, high) in SUPPORTED.items()]
    old_supported = [each for each in supported if each.min_version > 0]

    def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.api_version >= FIRST_VERSION_WITH_SOFTWARE:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            context.connection.client_software_name, context.connection.client_software_version = name, version
        versions = controller_versions()
        return ApiVersionsResponse(
            api_keys=api_keys if versions is None else _at_most(api_keys, versions),
            supported_features=supported if context.api_version >= FIRST_VERSION_WITH_FEATURES_FROM_0 else old_supported,
            finalized_features=_finalized(metadata, kraft_version()),
            finalized_features_epoch=metadata.end_offset - 1,
        )

    return handle


def _finalized(metadata: MetadataCache, kraft_version: int) -> list[FinalizedFeatureKey]:
    """Level 0 is never listed. A finalized feature has a single level, so both ends of its range are that level."""
    levels = {**metadata.state.features, KRAFT_VERSION_FEATURE: kraft_version}
    return [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
        if level > 0 and name in SUPPORTED
    ]


def _at_most(served: list[ApiVersion], controller: Mapping[int, tuple[int, int]]) -> list[ApiVersion]:
    """`served` with the versions of forwarded APIs that the controller serves too."""
    api_keys = []
    for each in served:
        if each.api_key in FORWARDABLE_KEYS:
            lowest, highest = controller.get(each.api_key, NO_VERSIONS)
            lowest, highest = max(lowest, each.min_version), min(highest, each.max_version)
            if lowest > highest:
                continue
            each = ApiVersion(api_key=each.api_key, min_version=lowest, max_version=highest)
        api_keys.append(each)
    return api_keys


def unsupported_version_response() -> ApiVersionsResponse:
    """The answer, in version 0, to an ApiVersions request of a version that is not served: the client picks one that is."""
    api = DECLARED[API_VERSIONS_KEY]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)],
    )
