"""ApiVersions (key 18). Serves v0–v4.

Behaviour:
- Tells the versions of every API that is served, with the floors that old clients look for (Produce and JoinGroup from 0).
- An unknown version is answered by dispatch in the layout of v0: UNSUPPORTED_VERSION and the versions of ApiVersions itself.
- No features: without `transaction.version` clients use transactions of the first kind, and no share or streams groups.

Version notes: v3 the client's software; a name or version that is not made of letters, digits, dots and dashes is INVALID_REQUEST
(librdkafka then asks with v0). v4 features whose minimum is 0.

Source: KafkaApis.handleApiVersionsRequest, ApiVersionsRequest.isValid (KIP-35, KIP-511, KIP-584).
"""

from __future__ import annotations

import re

from broker.context import Handler, RequestContext, Services
from protocol.apis import APIS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

API_VERSIONS_KEY = 18
FIRST_VERSION_WITH_SOFTWARE = 3

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def build(services: Services) -> Handler:
    # Built once: nobody changes a response.
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min_version, max_version=api.max_version)
            for api in sorted(APIS.values(), key=lambda api: api.key)
        ]
    )

    def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.api_version >= FIRST_VERSION_WITH_SOFTWARE and not (
            _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return response

    return handle


def unsupported_version_response() -> ApiVersionsResponse:
    """The answer, in version 0, to an ApiVersions request of a version that is not served: the client picks one that is."""
    api = APIS[API_VERSIONS_KEY]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)],
    )
