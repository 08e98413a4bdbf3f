"""SaslHandshake (key 17). Serves v0 and v1.

Behaviour: ILLEGAL_SASL_STATE. A request that has a right to come is answered by the connection's login (broker/network/login.py) and never
comes here: this is for one on a listener without SASL, or on a connection that is logged in and whose session has no end.

Source: KafkaApis.handleSaslHandshakeRequest.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler, Services
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    return handle
