"""Wraps a client's request in an Envelope, which a broker forwards to the active controller, and unwraps the client's response.

The controller is given the request as the client sent it, with its header, the client's principal and its address.

Source: kafka.server.ForwardingManager, org.apache.kafka.common.requests.EnvelopeRequest (KIP-590).
"""

from __future__ import annotations

import socket
from typing import Any

from broker.network.context import CloseConnection, ConnectionFacts, RequestContext
from protocol import codec
from protocol.apis import DECLARED
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import skip_tags
from protocol.messages.default_principal_data import DefaultPrincipalData
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.headers import RequestHeader

PRINCIPAL_VERSION = 0
CORRELATION_ID_SIZE = 4


def in_envelope(request: Any, client: RequestContext) -> EnvelopeRequest:
    """Wraps `request` in the version in which `client` sent it. Raises KafkaError for a client without an address."""
    api = DECLARED[client.api_key]
    header = RequestHeader(
        request_api_key=api.key,
        request_api_version=client.api_version,
        correlation_id=client.correlation_id,
        client_id=client.client_id,
    )
    body = codec.encode(request, client.api_version)
    return EnvelopeRequest(
        request_data=codec.encode(header, api.request_header_version(client.api_version)) + body,
        request_principal=_principal(client.connection),
        client_host_address=_address(client.connection.client_host),
    )


def take_out(answer: EnvelopeResponse, client: RequestContext) -> Any:
    """Returns the response to `client`'s request. Raises KafkaError: NOT_CONTROLLER when another node has to be asked. Raises
    CloseConnection when the controller does not support this version: on a new connection the client asks for the versions again."""
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise CloseConnection("the active controller does not serve this request's version")
    if answer.error_code == ErrorCode.NOT_CONTROLLER:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The node that was asked is not the active controller.")
    if answer.error_code or answer.response_data is None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller does not take the envelope, error {answer.error_code}.")
    api = DECLARED[client.api_key]
    data = memoryview(answer.response_data)
    try:
        position = CORRELATION_ID_SIZE
        if api.response_header_version(client.api_version) >= 1:
            position = skip_tags(data, position)
        return codec.decode(api.response_class, client.api_version, data, position)[0]
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller's response cannot be read.") from error


def _principal(connection: ConnectionFacts) -> bytes:
    kind, _, name = connection.principal.partition(":")
    told = DefaultPrincipalData(type=kind, name=name, token_authenticated=connection.is_token_authenticated)
    return PRINCIPAL_VERSION.to_bytes(2) + codec.encode(told, PRINCIPAL_VERSION)


def _address(host: str) -> bytes:
    """The address in network order, 4 or 16 bytes. Raises KafkaError: under another address a DENY of this one would not count."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
    raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's address cannot be forwarded.")
