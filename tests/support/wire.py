"""A client that says exactly what a test tells it to: requests by our codec, or raw frames, over one blocking socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any

from protocol import codec
from protocol.apis import DECLARED
from protocol.framing import skip_tags

TIMEOUT_S = 30.0
CLIENT_ID = "wire-test"


class WireClient:
    """One connection. Requests may be sent ahead of reading answers; `receive` returns them in order."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = TIMEOUT_S,
        source_host: str | None = None,
        enter: Callable[[socket.socket], socket.socket] | None = None,
    ) -> None:
        """`enter` is given the connected socket, and returns the one to speak over: TLS, a login."""
        source = None if source_host is None else (source_host, 0)
        connected = socket.create_connection((host, port), timeout=timeout_s, source_address=source)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected if enter is None else enter(connected)
        self._sent: list[tuple[int, int]] = []  # API key and version of the requests that are not answered yet

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def detach(self) -> socket.socket:
        """The socket, which is the caller's from now on; it waits without limit."""
        self._socket.settimeout(None)
        return self._socket

    def fileno(self) -> int:
        """For `select`: readable when an answer has begun to arrive."""
        return self._socket.fileno()

    def request(self, message: Any, version: int) -> Any:
        """The response to `message`. EOFError when the server closes the connection instead."""
        self.send(message, version)
        return self.receive()

    def send(self, message: Any, version: int) -> None:
        self.tell(message, version)
        self._sent.append((_key(message), version))

    def tell(self, message: Any, version: int) -> None:
        """Send a request that has no answer, as a Produce with acks=0."""
        self.send_frame(frame(_key(message), version, codec.encode(message, version), correlation_id=len(self._sent)))

    def send_frame(self, body: bytes) -> None:
        """Send `body` behind its size."""
        self.send_raw(struct.pack(">i", len(body)) + body)

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Any:
        key, version = self._sent.pop(0)
        answer = memoryview(self.receive_frame())
        api = DECLARED[key]
        position = skip_tags(answer, 4) if api.response_header_version(version) >= 1 else 4
        return codec.decode(api.response_class, version, answer, position)[0]

    def receive_frame(self) -> bytes:
        """The next frame without its size. EOFError at the connection's end."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def receive_raw(self, size: int) -> bytes:
        """What has come, so many bytes at most; nothing at the connection's end."""
        try:
            return self._socket.recv(size)
        except ConnectionResetError:
            return b""

    def is_closed_by_peer(self) -> bool:
        """Wait for the server to close; False if it says something instead. TimeoutError when it does neither."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise EOFError("the server closed the connection")
            parts += part
        return bytes(parts)


def _key(message: Any) -> int:
    return next(key for key, api in DECLARED.items() if api.request_class is type(message))


def frame(key: int, version: int, body: bytes, *, correlation_id: int = 0, client_id: bytes = CLIENT_ID.encode()) -> bytes:
    """A request without its size: the header that `version` asks for, then `body`."""
    header = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
    api = DECLARED.get(key)
    return header + (b"\x00" if api is not None and api.request_header_version(version) >= 2 else b"") + body
