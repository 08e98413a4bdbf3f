"""Goal: stored records are, byte for byte, what Apache Kafka 4.3.1 writes for the same values.

No other implementation in Python has these records, so the bytes were written once by Kafka's own generated classes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.codec import decode, encode
from protocol.schema import Message
from tests.wire.messages import name_of, populated, stored_messages, versions_of

LINES = [line.split(" ") for line in Path(__file__).with_name("golden_stored_records.txt").read_text().splitlines() if line[0] != "#"]
GOLDEN = {(name, int(version)): bytes.fromhex(encoded) for name, version, encoded in LINES}


@pytest.mark.parametrize("cls", list(stored_messages()), ids=name_of)
def test_stored_record_is_kafkas_byte_for_byte(cls: type[Message]) -> None:
    for version in versions_of(cls):
        record = populated(cls, version)

        encoded = encode(record, version)

        assert encoded == GOLDEN[cls.__name__, version], version
        assert decode(cls, version, encoded) == (record, len(encoded)), version
