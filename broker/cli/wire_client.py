"""A client of one broker or controller, for commands: a request, its answer, one after another over a blocking socket."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from protocol import codec
from protocol.apis import DECLARED
from protocol.errors import DecodeError
from protocol.framing import skip_tags
from protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from broker.cli.client_security import ClientSecurity

CLIENT_ID = b"barnabas-cluster"
FRAME_BYTES_MAX = 256 * 1024 * 1024


class WireClient:
    """One connection; `request` chooses the newest version that both sides have. OSError when it ends, no answer comes in time, or one of
    the two sides does not trust the other."""

    def __init__(self, host: str, port: int, *, timeout_s: float, security: ClientSecurity | None = None) -> None:
        """`security` is how it connects; None on a PLAINTEXT listener."""
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                self._socket = security.wrap(self._socket, host)
            served = self._exchange(ApiVersionsRequest(), 0)
            self._served = {api.api_key: (api.min_version, api.max_version) for api in served.api_keys}
            if security is not None:
                security.log_in(self.request)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def serves(self, request_class: type[Any], version: int = 0) -> bool:
        """Whether the peer has a version of that API that is known here, not below `version`."""
        newest = self._version(_key(request_class))
        return newest is not None and newest >= version

    def request(self, message: Any) -> Any:
        """The answer to `message`. OSError if the peer does not serve it."""
        version = self._version(_key(type(message)))
        if version is None:
            raise OSError(f"{type(message).__name__} is not served")
        return self._exchange(message, version)

    def _version(self, key: int) -> int | None:
        lowest, highest = self._served.get(key, (0, -1))
        ours = DECLARED[key]
        version = min(highest, ours.max_version)
        return version if version >= max(lowest, ours.min_version) else None

    def _exchange(self, message: Any, version: int) -> Any:
        api = DECLARED[_key(type(message))]
        header = struct.pack(">hhih", api.key, version, 0, len(CLIENT_ID)) + CLIENT_ID
        body = header + (b"\0" if api.request_header_version(version) >= 2 else b"") + codec.encode(message, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise OSError("the answer is not Kafka's protocol")
        answer = memoryview(self._receive(size))
        try:
            position = skip_tags(answer, 4) if api.response_header_version(version) >= 1 else 4
            return codec.decode(api.response_class, version, answer, position)[0]
        except DecodeError as e:
            raise OSError(f"the answer cannot be understood: {e}") from e

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(min(size - len(received), 1 << 20))
            if not part:
                raise ConnectionResetError("the connection was closed")
            received += part
        return bytes(received)


def _key(request_class: type[Any]) -> int:
    return next(key for key, api in DECLARED.items() if f"{api.name}Request" == request_class.__name__)
