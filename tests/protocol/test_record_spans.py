"""Spans say of records what a full decoder says, whatever the sizes of their varints."""

from __future__ import annotations

import random

import pytest

from protocol.errors import DecodeError
from protocol.record_spans import iterate_spans
from protocol.records import HEADER_SIZE, SimpleRecord, build_batch, iterate_records

SIZES = (0, 1, 40, 63, 64, 100, 8_191, 8_192, 20_000)
NOW_MS = 1_750_000_000_000


def drawn_batch(seed: int, count: int) -> bytes:
    draw = random.Random(seed)

    def drawn(sizes: tuple[int, ...]) -> bytes | None:
        return None if draw.random() < 0.1 else draw.randbytes(draw.choice(sizes))

    records = [
        SimpleRecord(
            drawn(SIZES), drawn(SIZES), (("h", b"x" * draw.choice(SIZES)),) if draw.random() < 0.2 else (),
            NOW_MS + draw.choice((0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, 10_000_000)),
        )
        for _ in range(count)
    ]  # fmt: skip
    return bytes(build_batch(records))


@pytest.mark.parametrize("seed", range(10))
def test_spans_agree_with_the_decoder(seed: int) -> None:
    batch = drawn_batch(seed, 100)
    payload = batch[HEADER_SIZE:]
    base_timestamp = next(iterate_records(batch)).timestamp

    spans = list(iterate_spans(payload, 100))

    assert [(delta, base_timestamp + timestamp, key, has_value) for _, _, _, timestamp, delta, key, has_value in spans] == [
        (record.offset, record.timestamp, record.key, record.value is not None) for record in iterate_records(batch)
    ]
    assert [start for start, *_ in spans] == [0, *(end for _, _, end, *_ in spans[:-1])]
    assert spans[-1][2] == len(payload)


def test_what_ends_too_early_is_refused() -> None:
    payload = drawn_batch(3, 3)[HEADER_SIZE:]

    for size in range(0, len(payload), 7):
        with pytest.raises(DecodeError):
            list(iterate_spans(payload[:size], 3))
