"""CreateDelegationToken (key 38): makes a token by which its owner can log in (KIP-48).

Version notes: 2 flexible; 3 an owner other than the requester (KIP-373).
"""

from __future__ import annotations

from ..schema import Array, Bytes, Int16, Int32, Int64, String, api, message, since, struct


@struct
class CreatableRenewers:
    principal_type: String = ""
    principal_name: String = ""


@api(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenRequest:
    """Asks for a token; without an owner's name its owner is who asks, with a lifetime of -1 that is the broker's."""

    owner_principal_type: String | None = since(3, default="", nullable_since=3)
    owner_principal_name: String | None = since(3, default="", nullable_since=3)
    renewers: Array[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


@message(versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse:
    """Tells the token's id, and the HMAC that is its password."""

    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = since(0, default=b"", secret=True)
    throttle_time_ms: Int32 = 0
