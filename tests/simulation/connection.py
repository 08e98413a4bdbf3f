"""A thin client's connection: requests by our codec, answers in their order, in virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any

from protocol import codec
from protocol.apis import DECLARED, Api
from protocol.framing import skip_tags
from tests.simulation.network import SimulatedNetwork

CLIENT_ID = b"simulated"
REQUEST_TIMEOUT_S = 2.0

_HEADER = struct.Struct(">ihhih")  # size, API key, API version, correlation id, client id's size
_API_OF = {f"{api.name}Request": api for api in DECLARED.values()}


class LostError(Exception):
    """There is no answer: not connected, the connection ended, or it took too long. Whether the request was done is unknown."""


class ClientConnection(asyncio.Protocol):
    """One connection to a broker. Owned by one client, which makes a new one when this is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self._received = bytearray()
        self._unanswered: deque[tuple[int, Api, int, asyncio.Future[Any]]] = deque()
        self._next_correlation_id = 1
        self.is_closed = False

    @classmethod
    async def open(cls, network: SimulatedNetwork, from_host: str, host: str, port: int) -> ClientConnection:
        """Raises LostError."""
        try:
            _, connection = await network.connect(from_host, host, port, lambda: cls(network.loop))
        except OSError as error:
            raise LostError(str(error)) from error
        return connection  # type: ignore[no-any-return]

    def send(self, message: Any, version: int) -> asyncio.Future[Any]:
        """The answer's future. It ends with LostError at the latest after REQUEST_TIMEOUT_S."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.is_closed:
            answer.set_exception(LostError("not connected"))
            return answer
        api = _API_OF[type(message).__name__]
        correlation_id, self._next_correlation_id = self._next_correlation_id, self._next_correlation_id + 1
        body = codec.encode(message, version)
        tags = b"\x00" if api.request_header_version(version) >= 2 else b""
        size = _HEADER.size - 4 + len(CLIENT_ID) + len(tags) + len(body)
        self._unanswered.append((correlation_id, api, version, answer))
        timer = self._loop.call_later(REQUEST_TIMEOUT_S, self._timed_out, answer)
        answer.add_done_callback(lambda _: timer.cancel())
        self._transport.write(_HEADER.pack(size, api.key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID + tags + body)
        return answer

    async def refresh(self) -> None:
        """Called before each use. Here there is nothing that ends by itself."""

    def close(self) -> None:
        if not self.is_closed:
            self._end("closed")
            self._transport.abort()

    # -- asyncio's calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = memoryview(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc is not None else "closed by the broker")

    # -- inside ----------------------------------------------------------------------------------------------------

    def _take(self, frame: memoryview) -> None:
        correlation_id, api, version, answer = self._unanswered.popleft()
        (answered_id,) = struct.unpack_from(">i", frame)
        assert answered_id == correlation_id, f"answer to request {answered_id}, {correlation_id} was expected"
        position = skip_tags(frame, 4) if api.response_header_version(version) >= 1 else 4
        response, _ = codec.decode(api.response_class, version, frame, position)
        if not answer.done():
            answer.set_result(response)

    def _timed_out(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            self.close()

    def _end(self, reason: str) -> None:
        self.is_closed = True
        unanswered, self._unanswered = self._unanswered, deque()
        for _, _, _, answer in unanswered:
            if not answer.done():
                answer.set_exception(LostError(reason))
                answer.exception()  # whoever gave up does not read it: it is no error of the run
