"""Outlines say of every record what reading it whole says, and refuse what that refuses."""

from __future__ import annotations

import random

import pytest

from protocol.errors import DecodeError
from protocol.record_outlines import iterate_outlines
from protocol.records import SimpleRecord, build_batch, iterate_payload, read_header, read_payload

RECORDS = [
    SimpleRecord(b"k" * 70, b"v" * 9_000, (("header", b"x"), ("", None)), 1000),
    SimpleRecord(None, b"", (), 5),
    SimpleRecord(b"", None, (("a", b""),), 2**40),
    *(SimpleRecord(b"k", b"v", (), 2000 + index) for index in range(200)),
]


def test_outlines_agree_with_the_records() -> None:
    batch = build_batch(RECORDS, base_offset=7)
    header, payload = read_header(batch), read_payload(batch, 0, read_header(batch))

    outlines = list(iterate_outlines(header, payload))

    whole = list(iterate_payload(header, payload))
    assert [(each.offset - 7, each.timestamp - header.base_timestamp, each.key is not None) for each in whole] == outlines


def test_mutated_payloads_are_refused_exactly_when_reading_them_whole_refuses() -> None:
    batch = build_batch(RECORDS[:6])
    header, payload = read_header(batch), bytearray(read_payload(batch, 0, read_header(batch)))
    source = random.Random(3)
    refused = 0
    for _ in range(3000):
        mutated = bytearray(payload)
        mutated[source.choice((source.randrange(len(mutated)), source.randrange(90)))] = source.randrange(256)
        try:
            expected = [(r.offset, r.timestamp - header.base_timestamp, r.key is not None) for r in iterate_payload(header, mutated)]
        except DecodeError:
            refused += 1
            with pytest.raises(DecodeError):
                list(iterate_outlines(header, mutated))
        else:
            assert list(iterate_outlines(header, mutated)) == expected
    assert refused > 100
