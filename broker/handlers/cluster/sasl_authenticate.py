"""SaslAuthenticate (key 36). Serves v0–v2.

Behaviour: ILLEGAL_SASL_STATE. A request that has a right to come is answered by the connection's login (broker/network/login.py) and never
comes here: this is for one on a listener without SASL, or on a connection that is logged in.

Source: KafkaApis.handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler, Services
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

MESSAGE = "SaslAuthenticate request received after successful authentication"


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE)

    return handle
