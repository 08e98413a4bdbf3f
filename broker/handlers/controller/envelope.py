"""Envelope (key 58) on controller listeners. Serves v0.

Behaviour:
- A broker forwards a client's request to the controller. The request inside is handled as if the client had sent it here, with the client's
principal and address, and its response is returned inside the answer. Who sends the envelope needs CLUSTER_ACTION; it may say that it is
anyone's.
- A node that does not lead the metadata quorum answers the envelope with NOT_CONTROLLER, so that the broker asks another node.
- A request that cannot be decoded, or of an unsupported version: UNSUPPORTED_VERSION, after which the broker closes its client's
connection. A request that is not for controllers: INVALID_REQUEST.

Source: ControllerApis.handleEnvelopeRequest, EnvelopeUtils, RequestChannel.Request.buildResponseSend (KIP-590).
"""

from __future__ import annotations

import socket
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.loop.deferred import Deferred
from broker.network.context import CloseConnection, ConnectionFacts, RequestContext
from protocol import codec
from protocol.apis import DECLARED, FORWARDABLE_KEYS, Api, ListenerKind
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import HEADER_SIZE_MIN, REQUEST_HEADER
from protocol.messages.default_principal_data import DefaultPrincipalData
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

FRAME_SIZE_BYTES = 4
RESPONSE_HEADER_BYTES = 5  # of flexible versions: correlation id and no tags
DESCRIBE_QUORUM_KEY = 55
FAMILIES = {4: socket.AF_INET, 16: socket.AF_INET6}
"""Address families by the size of an address."""


def build_envelope(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | Deferred:
        if not services.is_active():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)  # before other errors: the active controller may support the request
        facts = _facts(context.connection, request)
        api, version = _wanted(request.request_data)
        try:
            outcome = services.handle_frame(memoryview(request.request_data), facts)
        except DecodeError as error:
            raise _unreadable() from error
        except CloseConnection as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        if not isinstance(outcome, Deferred):
            return _enclosed(api, version, outcome)
        answer = Deferred()
        answer.on_abandon = outcome.abandon
        outcome.when_done(lambda chunks: answer.resolve(_enclosed, api, version, chunks))
        return answer

    return handle


def _facts(envelope: ConnectionFacts, request: EnvelopeRequest) -> ConnectionFacts:
    """Returns the facts of the client's connection that the envelope carries."""
    family = FAMILIES.get(len(request.client_host_address))
    if family is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's address in the envelope is none.")
    facts = ConnectionFacts(envelope.connection_id, envelope.listener, socket.inet_ntop(family, request.client_host_address))
    told = _principal(request.request_principal or b"")
    facts.principal = f"{told.type}:{told.name}"
    facts.is_token_authenticated = told.token_authenticated
    facts.is_forwarded = True
    return facts


def _principal(data: bytes) -> DefaultPrincipalData:
    try:
        if int.from_bytes(data[:2]) != 0:
            raise DecodeError("unknown version")
        told, _ = codec.decode(DefaultPrincipalData, 0, data, 2)
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
    return told


def _wanted(request_data: bytes) -> tuple[Api, int]:
    """API and version of the request in the envelope."""
    if len(request_data) < HEADER_SIZE_MIN:
        raise _unreadable()
    key, version, _, _ = REQUEST_HEADER.unpack_from(request_data)
    if key not in FORWARDABLE_KEYS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {key} is not eligible for forwarding.")
    api = DECLARED.get(key)
    if api is None or ListenerKind.CONTROLLER not in api.listeners or not api.serves(version):
        raise _unreadable()
    return api, version


def _unreadable() -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The request in the envelope is not served here.")


def _enclosed(api: Api, version: int, outcome: Any) -> EnvelopeResponse:
    """Returns an envelope with the response's frame without its size, or with an error if there is no response."""
    if isinstance(outcome, DecodeError):
        raise _unreadable() from outcome
    if isinstance(outcome, CloseConnection):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from outcome
    if isinstance(outcome, Exception):
        try:
            raise outcome
        finally:
            del outcome  # the traceback holds this frame: a cycle
    frame = b"".join(outcome)[FRAME_SIZE_BYTES:]
    if api.key == DESCRIBE_QUORUM_KEY and _is_from_follower(frame, version):
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=frame)


def _is_from_follower(frame: bytes, version: int) -> bool:
    """A quorum's follower answers DescribeQuorum with an error of its own."""
    response, _ = codec.decode(DescribeQuorumResponse, version, frame, RESPONSE_HEADER_BYTES)
    return any(partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for topic in response.topics for partition in topic.partitions)
