"""Headers of requests and responses. `protocol.framing` reads and writes them by hand on the hot path; these are the reference.

Source: KIP-482 and Kafka's RequestHeader and ResponseHeader definitions.
"""

from __future__ import annotations

from ..schema import Int16, Int32, String, message, since


@message(versions=(1, 2), flexible=2)
class RequestHeader:
    """Comes before every request. Version 2 belongs to flexible versions of the API; the client id keeps its old form there."""

    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: String | None = since(1, default="", compact=False)


@message(versions=(0, 1), flexible=1)
class ResponseHeader:
    """Comes before every response. Version 1 belongs to flexible versions of the API, but for ApiVersions, which keeps version 0."""

    correlation_id: Int32 = 0
