"""One connection to a broker: requests and their answers over a blocking socket, with TLS and a login before them where the brokers want
it. Several may be under way; an answer that another caller waits for is kept for it."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from typing import Any, NamedTuple

from ...protocol import codec
from ...protocol.apis import DECLARED, Api
from ...protocol.errors import DecodeError
from ...protocol.framing import skip_tags
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.sasl.login import LoginError
from ..errors import BrokerError
from .security import PASSING, Door, refusal_of

CLIENT_ID = b"barnabas-spark"
FRAME_BYTES_MAX = 1 << 30
VERSIONS_VERSION = 3
"""Of ApiVersions: brokers since 2.4 have it."""
NEWEST = {
    "Produce": 11, "Fetch": 12, "Metadata": 12, "FindCoordinator": 3, "InitProducerId": 4, "AddPartitionsToTxn": 3, "EndTxn": 4,
    "OffsetCommit": 8, "OffsetFetch": 7,
}  # fmt: skip
"""The newest version of an API that is spoken unless a caller says otherwise: topics by name, one coordinator or group at a time, and the
way into a transaction that brokers since 3.0 have."""
SESSION_PART = 0.85
"""Of a login's session, after which a new connection is made (Kafka's client logs in again after 0.85 to 0.95)."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection:
    """Raises OSError where the connection fails or ends, or the answer does not come within `timeout_s`; then it is of no use any more.
    SecurityError where another attempt would fail too."""

    def __init__(self, address: Address, *, timeout_s: float, door: Door) -> None:
        self.address = address
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._under_way: deque[tuple[Api, int, int]] = deque()  # each with its version and correlation id
        self._received: dict[int, Any] = {}  # by correlation id
        self._unwanted: set[int] = set()
        self._sent_count = 0
        self.features: dict[str, int] = {}
        """Finalized features and their levels."""
        self._served: dict[int, tuple[int, int]] = {}
        self._expires_s: float | None = None
        try:
            self._open(door)
        except PASSING:
            self.close()
            raise
        except (ssl.SSLError, LoginError) as error:
            self.close()
            raise refusal_of(error, address) from None
        except BaseException:
            self.close()
            raise

    def _open(self, door: Door) -> None:
        """A certificate of ours that is refused shows with the first answer only (TLS 1.3)."""
        self._socket = door.wrap(self._socket, self.address.host)
        served = self._exchange(ApiVersionsRequest(client_software_name="barnabas-spark", client_software_version="1"), VERSIONS_VERSION)
        self._served = {api.api_key: (api.min_version, api.max_version) for api in served.api_keys}
        self.features = {each.name: each.max_version_level for each in served.finalized_features}
        begun_s = time.monotonic()
        session_ms = door.log_in(self.request)
        if session_ms:
            self._expires_s = begun_s + session_ms / 1000 * SESSION_PART

    @property
    def has_expired(self) -> bool:
        """Whether the session of its login is near its end, and no answer is awaited: then another connection has to be made (KIP-368)."""
        is_near_its_end = self._expires_s is not None and time.monotonic() > self._expires_s
        return is_near_its_end and len(self._under_way) == len(self._unwanted)

    def close(self) -> None:
        self._socket.close()

    def serves(self, key: int) -> bool:
        return key in self._served

    def request(self, message: Any, *, version_max: int | None = None) -> Any:
        """Send `message` and receive its answer."""
        return self.receive(self.send(message, version_max=version_max))

    def send(self, message: Any, *, version_max: int | None = None) -> int:
        """Send it at the newest version that both sides speak, `version_max` at most. Returns what `receive` takes. BrokerError if there
        is no such version."""
        api = _api_of(type(message))
        lowest, highest = self._served.get(api.key, (0, -1))
        version: int = min(highest, api.max_version, NEWEST.get(api.name, api.max_version) if version_max is None else version_max)
        if version < max(lowest, api.min_version):
            raise BrokerError(f"the broker {self.address} does not serve {api.name}: it needs to be as new as Apache Kafka 3.0")
        return self._send(api, message, version)

    def receive(self, number: int) -> Any:
        """The answer to the request that `send` has given this number."""
        while number not in self._received:
            self._receive_next()
        return self._received.pop(number)

    def forget(self, number: int) -> None:
        """Nobody will receive this answer."""
        if self._received.pop(number, None) is None:
            self._unwanted.add(number)

    def _receive_next(self) -> None:
        api, version, correlation_id = self._under_way.popleft()
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise OSError(f"{self.address} does not speak Kafka's protocol")
        answer = memoryview(self._receive(size))
        if struct.unpack_from(">i", answer)[0] != correlation_id:
            raise OSError(f"{self.address} answered another request")
        try:
            position = skip_tags(answer, 4) if api.response_header_version(version) >= 1 else 4
            if correlation_id in self._unwanted:
                self._unwanted.discard(correlation_id)
            else:
                self._received[correlation_id] = codec.decode(api.response_class, version, answer, position)[0]
        except DecodeError as error:
            raise OSError(f"the answer of {self.address} cannot be understood: {error}") from error

    def _exchange(self, message: Any, version: int) -> Any:
        return self.receive(self._send(_api_of(type(message)), message, version))

    def _send(self, api: Api, message: Any, version: int) -> int:
        self._sent_count += 1
        header = struct.pack(">hhih", api.key, version, self._sent_count, len(CLIENT_ID)) + CLIENT_ID
        tags = b"\0" if api.request_header_version(version) >= 2 else b""
        body = codec.encode(message, version)
        self._under_way.append((api, version, self._sent_count))
        self._socket.sendall(b"".join((struct.pack(">i", len(header) + len(tags) + len(body)), header, tags, body)))
        return self._sent_count

    def _receive(self, size: int) -> bytearray:
        received = bytearray(size)
        view = memoryview(received)
        count = 0
        while count < size:
            read = self._socket.recv_into(view[count:], min(size - count, 1 << 20))
            if not read:
                raise ConnectionResetError(f"{self.address} closed the connection")
            count += read
        return received


def _api_of(request_class: type[Any]) -> Api:
    return _APIS[request_class.__name__]


_APIS = {f"{api.name}Request": api for api in DECLARED.values()}
