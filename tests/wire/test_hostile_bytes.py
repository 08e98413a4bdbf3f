"""Goal: whatever bytes come, decoding ends in a message or in DecodeError, and bytes that were cut off in DecodeError always.

Method: a message with every field filled is encoded in every version, then cut at every place, or changed at random places in the
ways that hurt decoders: bits, lengths one off or at the limits of int32, pieces swapped.
"""

from __future__ import annotations

import struct
from random import Random

import pytest

from protocol.codec import decode, encode
from protocol.errors import DecodeError
from protocol.schema import Message
from tests.wire.messages import ALL_MESSAGES, name_of, populated, versions_of

MUTATIONS_PER_VERSION = 100
HURTFUL_INT32 = (-(2**31), -2, -1, 0, 1, 0x7FFF, 2**31 - 1)


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=name_of)
def test_every_strict_prefix_is_a_decode_error(cls: type[Message]) -> None:
    for version in versions_of(cls):
        encoded = encode(populated(cls, version), version)

        for size in range(len(encoded)):
            with pytest.raises(DecodeError):
                decode(cls, version, encoded[:size])


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=name_of)
def test_a_mutation_is_decoded_or_a_decode_error(cls: type[Message]) -> None:
    for version in versions_of(cls):
        encoded = encode(populated(cls, version), version)
        random = Random(f"{cls.__name__} {version}")

        for _ in range(MUTATIONS_PER_VERSION if encoded else 0):
            mutation = mutate(bytearray(encoded), random)
            try:
                decoded, size = decode(cls, version, memoryview(mutation))
            except DecodeError:
                continue
            assert isinstance(decoded, cls) and size <= len(mutation)


def mutate(encoded: bytearray, random: Random) -> bytearray:
    position = random.randrange(len(encoded))
    kind = random.randrange(5)
    if kind == 0:
        encoded[position] ^= 1 << random.randrange(8)
    elif kind == 1:
        encoded[position] = (encoded[position] + random.choice((-1, 1))) & 0xFF
    elif kind == 2:
        encoded[position : position + 4] = struct.pack(">i", random.choice(HURTFUL_INT32))
    elif kind == 3:
        encoded[position : position + 1] = b"\xff" * random.randrange(1, 7)
    else:
        other = random.randrange(len(encoded))
        encoded[position : position + 4], encoded[other : other + 4] = encoded[other : other + 4], encoded[position : position + 4]
    return encoded
