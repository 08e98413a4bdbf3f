"""A blocking Kafka client of one connection: requests are the project's own declared messages, one in flight.

It is for the preparation and the counts of measurements (topics, offsets, producer ids, group members), not for load.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from protocol.apis import APIS
from protocol.codec import decode, encode
from protocol.messages.headers import RequestHeader, ResponseHeader
from protocol.schema import schema_of

CLIENT_ID = "bench"
TIMEOUT_S = 60.0


class WireClient:
    """Owns its socket; use it as a context manager. Raises OSError when the broker goes away."""

    def __init__(self, host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._awaited: tuple[type[Any], int, int] | None = None

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def request(self, message: object, version: int) -> Any:
        """Sends `message` and returns the decoded response."""
        self.send(message, version)
        return self.receive()

    def send(self, message: object, version: int) -> None:
        """Sends without waiting: the answer is for the next `receive`."""
        assert self._awaited is None, "one request in flight"
        key = schema_of(type(message)).key
        assert key is not None
        api = APIS[key]
        self._correlation_id += 1
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=self._correlation_id, client_id=CLIENT_ID)
        frame = encode(header, api.request_header_version(version)) + encode(message, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        self._awaited = (api.response_class, version, api.response_header_version(version))

    def receive(self) -> Any:
        """The answer to what was sent."""
        assert self._awaited is not None, "nothing was asked"
        response_class, version, header_version = self._awaited
        self._awaited = None
        (size,) = struct.unpack(">i", receive_exactly(self._socket, 4))
        frame = receive_exactly(self._socket, size)
        header, position = decode(ResponseHeader, header_version, frame)
        assert header.correlation_id == self._correlation_id, "an answer to another request"
        response, _ = decode(response_class, version, frame, position)
        return response

    def fileno(self) -> int:
        """For `select`: readable when an answer has begun to arrive."""
        return self._socket.fileno()


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """`size` bytes from the socket; raises ConnectionResetError when it closes before."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = connection.recv(min(size - len(pieces), 1 << 20))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        pieces += piece
    return bytes(pieces)
