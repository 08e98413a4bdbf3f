"""Messages that carry their version before them as an int16: the values of `__consumer_offsets`, the consumer protocol.

Source: org.apache.kafka.common.protocol.MessageUtil.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from ...codec import decode, encode
from ...errors import DecodeError
from ...schema import schema_of

T = TypeVar("T")

VERSION = struct.Struct(">h")


def encode_with_version(message: object, version: int) -> bytes:
    """Returns the version and the message."""
    return VERSION.pack(version) + encode(message, version)


def decode_with_version(cls: type[T], buffer: bytes | memoryview, *, is_newer_allowed: bool = False) -> tuple[T, int]:
    """Returns the message and its version; raises DecodeError for a malformed one or a version that is not declared.

    With `is_newer_allowed` a version above the last declared one is read as that: its writers only add fields at the end.
    """
    if len(buffer) < VERSION.size:
        raise DecodeError(f"{cls.__name__} without its version")
    version: int = VERSION.unpack_from(buffer)[0]
    first_version, last_version = schema_of(cls).versions
    if version < first_version or (version > last_version and not is_newer_allowed):
        raise DecodeError(f"{cls.__name__} of version {version}")
    return decode(cls, min(version, last_version), buffer, VERSION.size)[0], version
