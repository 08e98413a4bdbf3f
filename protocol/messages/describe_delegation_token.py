"""DescribeDelegationToken (key 41): lists delegation tokens (KIP-48).

Version notes: 2 flexible; 3 who asked for each token (KIP-373).
"""

from __future__ import annotations

from ..schema import Array, Bytes, Int16, Int32, Int64, String, api, message, since, struct


@struct
class DescribeDelegationTokenOwner:
    principal_type: String = ""
    principal_name: String = ""


@api(key=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenRequest:
    """Asks for the tokens that these own or may renew; null for all."""

    owners: Array[DescribeDelegationTokenOwner] | None = []


@struct
class DescribedDelegationTokenRenewer:
    principal_type: String = ""
    principal_name: String = ""


@struct
class DescribedDelegationToken:
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = since(0, default=b"", secret=True)
    renewers: Array[DescribedDelegationTokenRenewer] = []


@message(versions=(1, 3), flexible=2)
class DescribeDelegationTokenResponse:
    """Lists the tokens that the client may see, with their passwords."""

    error_code: Int16 = 0
    tokens: Array[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0
