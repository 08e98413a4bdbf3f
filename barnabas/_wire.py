"""Kafka's protocol by Python's own library: one request, one answer, before any client library is at work.

A request's body begins after the client's id. `_create_topic.py`, `_find_leader.py` and `_secure.py` know the requests.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

from ._errors import BrokerError

CLIENT_ID = b"barnabas"
CORRELATION_ID = 1
RESPONSE_BYTES_MAX = 1 << 20
STRING_BYTES_MAX = 32_767


Login = Callable[[socket.socket, str], socket.socket]
"""Puts TLS on a connection to a host, and logs in. Returns the connection to go on with. Raises OSError, BrokerError."""


def ask(address: tuple[str, int], api_key: int, version: int, body: bytes, timeout_s: float, login: Login | None = None) -> bytes:
    """The answer's bytes after its correlation id. Raises OSError where the broker does not answer, also in time."""
    with socket.create_connection(address, timeout_s) as plain, contextlib.ExitStack() as stack:
        connection = plain if login is None else stack.enter_context(login(plain, address[0]))
        return exchange(connection, api_key, version, body)


def exchange(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """As `ask`, over a connection that is there."""
    header = struct.pack(f">hhih{len(CLIENT_ID)}s", api_key, version, CORRELATION_ID, len(CLIENT_ID), CLIENT_ID)
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 4 <= size <= RESPONSE_BYTES_MAX:
        raise OSError(f"an answer of {size} bytes")
    return _receive(connection, size)[4:]


def string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise BrokerError(f"a name or setting of {len(raw)} bytes is too long")
    return struct.pack(">h", len(raw)) + raw


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the broker closed the connection")
        received += chunk
    return received
