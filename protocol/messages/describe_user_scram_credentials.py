"""DescribeUserScramCredentials (key 50): lists the SCRAM mechanisms of users, and the rounds of their credentials."""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, struct


@struct
class UserName:
    name: String = ""


@api(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest:
    """Asks for these users; for all if there are none."""

    users: Array[UserName] | None = []


@struct
class CredentialInfo:
    mechanism: Int8 = 0
    iterations: Int32 = 0


@struct
class DescribeUserScramCredentialsResult:
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: Array[CredentialInfo] = []


@message(versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    """Lists what each user has; no salt and no key."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: Array[DescribeUserScramCredentialsResult] = []
