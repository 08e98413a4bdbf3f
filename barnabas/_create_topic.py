"""CreateTopics version 4 by Python's own library: a topic for a test before any client library is at work.

Version 4 is the first that takes -1 for the broker's default number of partitions, and the last before the flexible encoding.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping

from ._errors import BrokerError

CREATE_TOPICS, VERSION = 19, 4
TIMEOUT_S = 30.0
TOPIC_ALREADY_EXISTS = 36
DEFAULT = -1  # partitions and replicas as the broker's settings say
RESPONSE_BYTES_MAX = 1 << 20
# Request header version 1: API, version, correlation id, client id.
HEADER = struct.pack(">hhih8s", CREATE_TOPICS, VERSION, 1, 8, b"barnabas")


def create_topic(address: tuple[str, int], name: str, partitions: int | None, config: Mapping[str, str], *, exist_ok: bool) -> None:
    """Returns once the topic is there; None partitions are the broker's default.

    Raises BrokerError where the broker refuses, OSError where it does not answer.
    """
    body = HEADER + struct.pack(">i", 1) + _string(name) + struct.pack(">ihi", DEFAULT if partitions is None else partitions, DEFAULT, 0)
    body += struct.pack(">i", len(config)) + b"".join(_string(key) + _string(value) for key, value in config.items())
    body += struct.pack(">i?", int(TIMEOUT_S * 1000), False)
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not 0 < size <= RESPONSE_BYTES_MAX:
            raise BrokerError(f"cannot create topic {name}: an answer of {size} bytes")
        error, message = _parse(_receive(connection, size))
    if error and not (error == TOPIC_ALREADY_EXISTS and exist_ok):
        raise BrokerError(f"cannot create topic {name}: {message or f'error {error}'}")


def partitions_by_topic(topics: Mapping[str, int] | Iterable[str]) -> dict[str, int | None]:
    """Topics as users name them: with their partitions, or names alone for the broker's default. Raises TypeError for anything else."""
    if isinstance(topics, str):
        raise TypeError(f'topics are {{"{topics}": 3}} or ["{topics}"], not a string')
    partitions_by_name = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics)
    for name, partitions in partitions_by_name.items():
        if not isinstance(name, str) or not (partitions is None or isinstance(partitions, int)):
            raise TypeError(f"topics are names with a number of partitions, not {name!r}: {partitions!r}")
    return partitions_by_name


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 32_767:
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


def _parse(answer: bytes) -> tuple[int, str]:
    """The one topic's error code and message: correlation id, throttle time, topics of name, error, message."""
    (name_size,) = struct.unpack_from(">h", answer, 12)
    error, message_size = struct.unpack_from(">hh", answer, 14 + name_size)
    return error, answer[18 + name_size : 18 + name_size + max(message_size, 0)].decode(errors="replace")
