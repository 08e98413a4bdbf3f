"""RenewDelegationToken (key 39): lengthens the life of a delegation token (KIP-48).

Version notes: 2 flexible.
"""

from __future__ import annotations

from ..schema import Bytes, Int16, Int32, Int64, api, message, since


@api(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenRequest:
    """Asks to let the token live on for a time, -1 for the broker's."""

    hmac: Bytes = since(0, default=b"", secret=True)
    renew_period_ms: Int64 = 0


@message(versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse:
    """Tells when the token ends."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
