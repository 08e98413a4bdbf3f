"""ExpireDelegationToken (key 40): ends a delegation token, or sets when it ends (KIP-48).

Version notes: 2 flexible.
"""

from __future__ import annotations

from ..schema import Bytes, Int16, Int32, Int64, api, message, since


@api(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenRequest:
    """Asks to let the token end after a time; at once, if it is negative."""

    hmac: Bytes = since(0, default=b"", secret=True)
    expiry_time_period_ms: Int64 = 0


@message(versions=(1, 2), flexible=2)
class ExpireDelegationTokenResponse:
    """Tells when the token ends."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
