"""AlterUserScramCredentials (key 51): sets and removes the SCRAM credentials of users."""

from __future__ import annotations

from ..schema import Array, Bytes, Int8, Int16, Int32, String, api, message, since, struct


@struct
class ScramCredentialDeletion:
    name: String = ""
    mechanism: Int8 = 0


@struct
class ScramCredentialUpsertion:
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = since(0, default=b"", secret=True)
    salted_password: Bytes = since(0, default=b"", secret=True)


@api(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest:
    """Asks to remove and to set credentials, one of each user."""

    deletions: Array[ScramCredentialDeletion] = []
    upsertions: Array[ScramCredentialUpsertion] = []


@struct
class AlterUserScramCredentialsResult:
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


@message(versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """Tells what came of each user."""

    throttle_time_ms: Int32 = 0
    results: Array[AlterUserScramCredentialsResult] = []
