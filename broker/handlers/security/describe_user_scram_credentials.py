"""DescribeUserScramCredentials (key 50). Serves v0, on brokers only.

Behaviour: mechanisms and rounds of the users' SCRAM credentials in the committed metadata, of the users who are named, or of all. A user
without a credential is RESOURCE_NOT_FOUND, one who is named twice DUPLICATE_RESOURCE. Users come in the order of the request, or of their
first records; Kafka's order is that of a hash map.

Not done: Kafka's controllers declare this API and do not serve it (UNKNOWN_SERVER_ERROR); ours do not declare it.

Source: KafkaApis.handleDescribeUserScramCredentialsRequest, ScramImage.describe (KIP-554).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.credentials.scram_store import ScramKey, ScramStore
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS = (1, 2)
"""SCRAM-SHA-256 and SCRAM-SHA-512."""


def build(services: Services) -> Handler:
    credentials = services.metadata.state.scram

    def handle(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Any:
        return at_once_or_in_turns(_answer(credentials, request))

    return handle


def _answer(credentials: ScramStore, request: DescribeUserScramCredentialsRequest) -> Work:
    times: dict[str, int] = dict.fromkeys((key.user for key in credentials), 1) if not request.users else {}
    for user in request.users or ():
        times[user.name] = times.get(user.name, 0) + 1
    results = []
    for name, count in times.items():
        results.append(_twice(name) if count > 1 else _described(credentials, name))
        yield
    return DescribeUserScramCredentialsResponse(results=results)


def _described(credentials: ScramStore, user: str) -> DescribeUserScramCredentialsResult:
    iterations_of = {mechanism: credentials.find_iterations(ScramKey(user, mechanism)) for mechanism in MECHANISMS}
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=iterations)
        for mechanism, iterations in iterations_of.items()
        if iterations is not None
    ]
    if infos:
        return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
    why = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=why)


def _twice(user: str) -> DescribeUserScramCredentialsResult:
    why = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    return DescribeUserScramCredentialsResult(user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=why)


def error_response(request: DescribeUserScramCredentialsRequest, error: KafkaError) -> DescribeUserScramCredentialsResponse:
    results = [DescribeUserScramCredentialsResult(error_code=error.code, error_message=error.message) for _ in request.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message, results=results)
