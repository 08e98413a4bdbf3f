"""Requests to other nodes: PeerRequest, and PeerCodecs, which writes them and reads their answers.

Source: org.apache.kafka.clients.InFlightRequests, ClientRequest.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.network.outbox import Chunk
from protocol import codec
from protocol.apis import DECLARED, Api
from protocol.errors import DecodeError
from protocol.framing import skip_tags

_HEADER = struct.Struct(">ihhih")  # size, API key, API version, correlation id, client id's size
_CORRELATION_ID = struct.Struct(">i")

OnAnswer = Callable[[Any | None], None]
"""Called once: with the response, or None when there is none (not connected, lost, timed out, not spoken by the peer)."""


class _Codec(NamedTuple):
    """The encoder and the decoder for one API at one version."""

    encode: Callable[[Any], Sequence[Any]]
    decode: Callable[[memoryview, int], tuple[Any, int]]
    request_tags: bytes
    has_response_tags: bool


class PeerRequest:
    """One request: `version` is None for the newest that both sides support. Its `codec` is set when it is written."""

    __slots__ = ("api", "codec", "correlation_id", "deadline_ms", "message", "on_answer", "version")

    codec: _Codec

    def __init__(self, message: Any, api: Api, version: int | None, on_answer: OnAnswer) -> None:
        self.message = message
        self.api = api
        self.version = version
        self.on_answer = on_answer
        self.correlation_id = 0
        self.deadline_ms = 0


class PeerCodecs:
    """Writes the requests of one connection, which are numbered in their order. Keeps a codec for each API and version that was sent."""

    __slots__ = ("_client_id", "_codecs", "_next_correlation_id")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._codecs: dict[tuple[int, int], _Codec] = {}  # by API key and version
        self._next_correlation_id = 1

    def write(self, request: PeerRequest, version: int) -> list[Chunk]:
        """Returns the request's frame, and notes in it what its answer will be read with."""
        api, client_id = request.api, self._client_id
        found = self._codecs.get((api.key, version)) or self._make_codec(api, version)
        request.correlation_id, request.codec = self._next_correlation_id, found
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        tags = found.request_tags
        chunks = found.encode(request.message)
        size = _HEADER.size - 4 + len(client_id) + len(tags) + sum(map(len, chunks))
        head = _HEADER.pack(size, api.key, version, request.correlation_id, len(client_id)) + client_id + tags
        return [head + chunks[0]] if len(chunks) == 1 else [head, *chunks]

    def _make_codec(self, api: Api, version: int) -> _Codec:
        made = self._codecs[api.key, version] = _Codec(
            codec.chunks_encoder(api.request_class, version),
            codec.decoder(api.response_class, version),
            b"\x00" if api.request_header_version(version) >= 2 else b"",
            api.response_header_version(version) >= 1,
        )
        return made


def read_answer(frame: memoryview, request: PeerRequest) -> Any:
    """Returns the response in `frame`, the next one of the connection, whose views are valid as long as the frame. DecodeError when it
    does not answer `request`, or is malformed."""
    if len(frame) < _CORRELATION_ID.size:
        raise DecodeError("a response without a correlation id")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    if correlation_id != request.correlation_id:
        raise DecodeError(f"a response to request {correlation_id}, {request.correlation_id} is expected")
    position = _CORRELATION_ID.size
    if request.codec.has_response_tags:
        position = skip_tags(frame, position)
    response, _ = request.codec.decode(frame, position)
    return response


def api_of(message: Any) -> Api:
    """The API that `message` is a request of."""
    return _api_of_class(type(message).__name__)


@functools.cache
def _api_of_class(class_name: str) -> Api:
    return next(each for each in DECLARED.values() if each.name == class_name.removesuffix("Request"))
