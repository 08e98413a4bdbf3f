"""Kafka's text form of a UUID: the 16 raw bytes in URL-safe base64 without padding, 22 characters.

Source: org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

ZERO_UUID = bytes(16)
"""Stands for "no id" wherever Kafka has a UUID field."""

TEXT_LENGTH = 22

_TEXT = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")

_VERSION_4_MASK = 0xFFFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF  # what is random in a UUID of version 4
_VERSION_4_BITS = 0x00000000_0000_4000_8000_000000000000

_SIX_BITS_OF_DASH = 62  # the place of '-' in the alphabet of the text


def uuid_to_text(uuid: bytes) -> str:
    """Returns the 22 characters for 16 raw bytes."""
    if len(uuid) != len(ZERO_UUID):
        raise ValueError(f"a UUID has 16 bytes, not {len(uuid)}")
    return urlsafe_b64encode(uuid)[:TEXT_LENGTH].decode("ascii")


def random_uuid(random_bits: Callable[[int], int]) -> bytes:
    """A random UUID of version 4 whose text does not look like a command's option (Uuid.randomUuid)."""
    while True:
        uuid = (random_bits(128) & _VERSION_4_MASK | _VERSION_4_BITS).to_bytes(16, "big")
        if uuid[0] >> 2 != _SIX_BITS_OF_DASH:
            return uuid


def random_uuid_text(random_bits: Callable[[int], int]) -> str:
    """A random UUID as java.util.UUID prints it. `uuid.uuid4` does the same; importing its module takes 2 ms of the start."""
    text = f"{random_bits(128) & _VERSION_4_MASK | _VERSION_4_BITS:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def uuid_from_text(text: str) -> bytes:
    """Returns the 16 raw bytes for what Kafka takes as a UUID's text; raises ValueError for anything else.

    Like Java's decoder this takes padding, and ignores the four bits of the last character for which 16 bytes have no room.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"not a UUID: {text!r}")
    return urlsafe_b64decode(match[1] + "==")
