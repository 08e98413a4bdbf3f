"""RenewDelegationToken (key 39). Serves v1–v2.

Behaviour: the active controller puts the end of a token off, by delegation.token.expiry.time.ms or the shorter time that the request names,
and not beyond its longest life. Its owner and its renewers may; others get DELEGATION_TOKEN_OWNER_MISMATCH.
The token is named by its HMAC. Unknown: DELEGATION_TOKEN_NOT_FOUND; over: DELEGATION_TOKEN_EXPIRED. Other errors as those
of CreateDelegationToken.

Source: KafkaApis.handleRenewTokenRequest, DelegationTokenControlManager.renewDelegationToken (KIP-48).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.security.token_requests import ERROR_TIMESTAMP_MS, may_ask_for_tokens
from broker.handlers.services import ControllerServices, Handler, Services
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse | Coroutine[Any, Any, Any]:
        if not may_ask_for_tokens(context.connection):
            code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=ERROR_TIMESTAMP_MS)
        return services.controller.renew_delegation_token(request, context)

    return handle
