"""SaslAuthenticate (key 36): carries a token of the SASL mechanism.

Version notes: 1 the session's lifetime (KIP-368). 2 flexible.
"""

from __future__ import annotations

from ..schema import Bytes, Int16, Int64, String, api, message, since


@api(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    """The client's token."""

    auth_bytes: Bytes = since(0, default=b"", secret=True)


@message(versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """The broker's token. The lifetime is 0 for a session without an end."""

    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = since(0, default=b"", secret=True)
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)
