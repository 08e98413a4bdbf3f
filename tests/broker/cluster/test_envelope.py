"""A client's request travels in an Envelope: what one broker puts in, the controller's listener handles as if the client were there."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.envelope import in_envelope, take_out
from broker.dispatch import KafkaApis
from broker.handlers.controller.envelope import build_envelope
from broker.handlers.services import ControllerServices
from broker.loop.turns import Turns
from broker.network.context import CloseConnection, ConnectionFacts, ListenerFacts, RequestContext
from broker.observability.metrics import Metrics
from broker.security.authorizer.access import OPEN_ACCESS
from protocol import codec
from protocol.apis import ListenerKind
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.broker.metadata.room import Room, creation, open_room

CREATE_TOPICS, METADATA, DESCRIBE_QUORUM, ALTER_CONFIGS = 19, 3, 55, 33
ANONYMOUS = bytes.fromhex("000005557365720a414e4f4e594d4f55530000")
"""User:ANONYMOUS as Kafka 4.3.1 writes it."""


def of_client(key: int = CREATE_TOPICS, version: int = 7, host: str = "10.1.2.3") -> RequestContext:
    return RequestContext(key, version, 77, "someone", ConnectionFacts(1, ListenerFacts("PLAINTEXT"), host), 0, OPEN_ACCESS)


class ControllerListener:
    """What a controller listener makes of frames."""

    def __init__(self, room: Room) -> None:
        turns = Turns(asyncio.get_running_loop().call_soon, room.clock.monotonic_us)
        services = ControllerServices(
            room.clock,
            Metrics(),
            room.cache,
            room.local,
            lambda: room.local.is_active,
            room.quorum.handle_request,
            self._handle,
            room.quorum,
            room.config,
        )
        self._apis = KafkaApis(services, turns, ListenerKind.CONTROLLER)
        self._services = services

    def _handle(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        return self._apis.handle(frame, facts)

    async def answer(self, request: EnvelopeRequest) -> EnvelopeResponse:
        """As the wire carries both. KafkaError for an error of the envelope itself."""
        request, _ = codec.decode(EnvelopeRequest, 0, codec.encode(request, 0))
        context = RequestContext(58, 0, 1, "broker", ConnectionFacts(2, ListenerFacts("CONTROLLER"), "127.0.0.1"), 0, OPEN_ACCESS)
        outcome: Any = build_envelope(self._services)(context, request)
        if not isinstance(outcome, EnvelopeResponse):
            waiting = asyncio.get_running_loop().create_future()
            outcome.when_done(lambda value: waiting.set_result(value))
            outcome = await waiting
        if isinstance(outcome, Exception):
            raise outcome
        return codec.decode(EnvelopeResponse, 0, codec.encode(outcome, 0))[0]


async def refusal(listener: ControllerListener, request: EnvelopeRequest) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await listener.answer(request)
    return refused.value.code


def test_an_envelope_has_the_request_with_its_header_and_says_who_asks() -> None:
    made = in_envelope(creation("a"), of_client())

    header = bytes.fromhex("001300070000004d0007") + b"someone" + b"\x00"
    assert made.request_data == header + codec.encode(creation("a"), 7)
    assert made.request_principal == ANONYMOUS
    assert made.client_host_address == bytes((10, 1, 2, 3))


@pytest.mark.parametrize(("host", "address"), [("::1", bytes(15) + b"\x01"), ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\x01")])
def test_an_address_may_be_of_version_6(host: str, address: bytes) -> None:
    assert in_envelope(creation("a"), of_client(host=host)).client_host_address == address


def test_versions_without_tags_have_none_in_their_header() -> None:
    made = in_envelope(creation("a"), of_client(version=4))

    assert made.request_data == bytes.fromhex("001300040000004d0007") + b"someone" + codec.encode(creation("a"), 4)


@pytest.mark.parametrize("version", [2, 4, 5, 7])
async def test_the_controller_creates_what_is_in_an_envelope(tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    room = await open_room(tmp_path)
    client = of_client(version=version)

    answer = await ControllerListener(room).answer(in_envelope(creation("a", 2, 1), client))
    response: CreateTopicsResponse = take_out(answer, client)

    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.NONE)]
    assert len(room.cache.topics["a"].partitions) == 2
    assert "10.1.2.3" in caplog.text, "the log tells the client, not the broker that forwards"
    await room.close()


async def test_who_does_not_lead_says_so_of_the_envelope(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.quorum.resign(room.quorum.epoch)
    listener = ControllerListener(room)
    for _ in range(20):
        await asyncio.sleep(0)

    unknown = EnvelopeRequest(request_data=bytes.fromhex("00390063"), request_principal=ANONYMOUS, client_host_address=bytes(4))
    assert await refusal(listener, in_envelope(creation("a"), of_client())) is ErrorCode.NOT_CONTROLLER
    assert await refusal(listener, unknown) is ErrorCode.NOT_CONTROLLER, "another node may serve it"
    await room.close()


async def test_a_leader_that_resigns_before_it_has_answered_says_so_of_the_envelope(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.executor.is_held = True
    runs_before = room.executor.runs_count
    waiting = asyncio.ensure_future(ControllerListener(room).answer(in_envelope(creation("a"), of_client())))
    while room.executor.runs_count == runs_before:
        await asyncio.sleep(0)

    room.quorum.resign(room.quorum.epoch)

    with pytest.raises(KafkaError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    room.executor.release()
    await room.close()


async def test_what_is_not_to_be_forwarded_is_refused(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    listener = ControllerListener(room)
    made = in_envelope(creation("a"), of_client())

    def with_header(key: int, version: int) -> EnvelopeRequest:
        data = key.to_bytes(2) + version.to_bytes(2) + made.request_data[4:]
        return EnvelopeRequest(request_data=data, request_principal=ANONYMOUS, client_host_address=bytes(4))

    assert await refusal(listener, with_header(METADATA, 9)) is ErrorCode.INVALID_REQUEST
    assert await refusal(listener, with_header(CREATE_TOPICS, 99)) is ErrorCode.UNSUPPORTED_VERSION
    assert await refusal(listener, with_header(ALTER_CONFIGS, 1)) is ErrorCode.UNSUPPORTED_VERSION
    await room.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"request_data": b"\x00\x13"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": bytes.fromhex("00130007000000010001")}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\x00\x01" + ANONYMOUS[2:]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": ANONYMOUS[:-3]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b""}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": bytes(5)}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_damaged_envelope_is_refused(tmp_path: Path, change: dict[str, Any], error: ErrorCode) -> None:
    room = await open_room(tmp_path)
    damaged = in_envelope(creation("a"), of_client())
    for name, value in change.items():
        setattr(damaged, name, value)

    assert await refusal(ControllerListener(room), damaged) is error
    assert not room.cache.topics
    await room.close()


def test_a_version_that_the_controller_does_not_serve_closes_the_client_s_connection() -> None:
    """It asks for the versions again, and is told those of the new controller."""
    with pytest.raises(CloseConnection):
        take_out(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), of_client())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
        (EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\x00\x00"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_envelope_without_a_response_is_an_error(answer: EnvelopeResponse, error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        take_out(answer, of_client())

    assert refused.value.code is error
