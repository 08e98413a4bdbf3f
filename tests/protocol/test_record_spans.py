"""Spans say of records what a full decoder says, whatever the sizes of their varints."""

from __future__ import annotations

import random

import pytest

from protocol.errors import DecodeError
from protocol.record_spans import find_records, iterate_spans, list_keys
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


@pytest.mark.parametrize("sizes", [(1, 40), (100, 1_000), SIZES])
@pytest.mark.parametrize("seed", range(5))
def test_keys_agree_with_the_decoder(seed: int, sizes: tuple[int, ...]) -> None:
    """Also of records that have the sizes of most: their heads are read at once."""
    draw = random.Random(seed)
    records = [
        SimpleRecord(
            None if draw.random() < 0.02 else draw.randbytes(draw.choice((0, 10, 60, 64))),
            None if draw.random() < seed % 2 / 100 else draw.randbytes(draw.choice(sizes)), (),
            NOW_MS + draw.choice((0, 0, 0, 31, 64, 8_192)),
        )
        for _ in range(150)
    ]  # fmt: skip
    payload = bytes(build_batch(records))[HEADER_SIZE:]

    assert list_keys(payload, 150) == ([record.key for record in records], None, any(record.value is None for record in records))


@pytest.mark.parametrize("sizes", [(1, 40), (100, 1_000), SIZES])
@pytest.mark.parametrize("seed", range(5))
def test_keys_of_records_between_which_others_were_removed_agree_with_the_decoder(seed: int, sizes: tuple[int, ...]) -> None:
    draw = random.Random(seed)
    records = [
        SimpleRecord(
            draw.randbytes(draw.choice((0, 10, 60, 64))), draw.randbytes(draw.choice(sizes)), (), NOW_MS + draw.choice((0, 31, 64, 64))
        )
        for _ in range(400)
    ]
    payload = bytes(build_batch(records))[HEADER_SIZE:]
    spans = [span for span in iterate_spans(payload, 400) if draw.random() < 0.3]
    remaining = b"".join(payload[start:end] for start, _, end, *_ in spans)

    assert list_keys(b"before" + remaining + b"behind", len(spans), 6, 6 + len(remaining)) == (
        [key for *_, key, _ in spans], [delta for _, _, _, _, delta, _, _ in spans], False,
    )  # fmt: skip


@pytest.mark.parametrize("count", [63, 64, 65, 128, 8_191, 8_192, 8_193])
@pytest.mark.parametrize("odd", [None, 30, 70])
def test_keys_of_like_records_agree_with_the_decoder_at_every_size_of_the_offset_delta(count: int, odd: int | None) -> None:
    """Such heads are read with one call each, up to the first that is another one's."""
    values = [b"v" * (5_000 if place == odd else 100) for place in range(count)]
    records = [SimpleRecord(b"key-%d" % place, value + value[: place % 7], (), NOW_MS) for place, value in enumerate(values)]
    payload = bytes(build_batch(records))[HEADER_SIZE:]

    assert list_keys(payload, count) == ([record.key for record in records], None, any(record.value is None for record in records))


@pytest.mark.parametrize("sizes", [(20, 0), (20, 19), (0, 20), (3, 2)])
def test_a_short_last_record_is_read(sizes: tuple[int, int]) -> None:
    """The others are read with a call that takes more bytes than it has."""
    keys = [b"k" * sizes[0]] * 5 + [b"k" * sizes[1]]
    payload = bytes(build_batch([SimpleRecord(key, b"", (), NOW_MS) for key in keys]))[HEADER_SIZE:]

    assert list_keys(payload, 6) == (keys, None, False)


def test_a_later_record_out_of_its_place_is_told() -> None:
    payload = bytearray(build_batch([SimpleRecord(b"key", b"v" * 100, (), NOW_MS) for _ in range(200)])[HEADER_SIZE:])
    spans = list(iterate_spans(payload, 200))
    payload[spans[150][1]] += 2  # its offset delta is 151 now

    keys, deltas, _ = list_keys(payload, 200)

    assert keys == [b"key"] * 200
    assert deltas == [*range(150), 151, *range(151, 200)]


def test_offsets_that_are_not_the_records_places_are_told() -> None:
    batches = [bytes(build_batch([SimpleRecord(b"key%d" % index, b"v" * 100, (), NOW_MS) for index in range(6)]))[HEADER_SIZE:]] * 2
    first, second = (list(iterate_spans(batch, 6)) for batch in batches)
    payload = b"".join(batches[0][start:end] for start, _, end, *_ in (first[0], first[1], second[4], second[3]))

    assert list_keys(payload, 4) == ([b"key0", b"key1", b"key4", b"key3"], [0, 1, 4, 3], False)


def test_keys_that_end_too_early_are_refused() -> None:
    drawn, common = drawn_batch(3, 3)[HEADER_SIZE:], bytes(build_batch([SimpleRecord(b"key", b"v" * 100)] * 3))[HEADER_SIZE:]

    for payload in (drawn, common):
        for size in range(0, len(payload), 7):
            with pytest.raises(DecodeError):
                list_keys(payload[:size], 3)
        with pytest.raises(DecodeError):
            list_keys(payload + payload[:1], 3)


def test_a_key_beyond_its_record_is_refused() -> None:
    payload = bytearray(build_batch([SimpleRecord(b"key", b"v" * 30)] * 2))[HEADER_SIZE:]
    large = bytearray(build_batch([SimpleRecord(b"k" * 20, b"v" * 38)] * 2))[HEADER_SIZE:]
    payload[payload.index(b"key") - 1] = large[large.index(b"k" * 20) - 1] = 63 << 1

    for damaged in (payload, large):
        with pytest.raises(DecodeError):
            list_keys(damaged, 2)


def test_what_is_not_chosen_is_left_out() -> None:
    payload = drawn_batch(4, 50)[HEADER_SIZE:]
    draw = random.Random(4)
    chosen = bytes(draw.random() < 0.5 for _ in range(50))

    spans = list(iterate_spans(payload, 50, chosen))

    assert spans == [span for span, is_chosen in zip(iterate_spans(payload, 50), chosen, strict=True) if is_chosen]
    assert find_records(payload, chosen) == [span[:4] for span in spans]
    assert find_records(b"before" + payload, chosen, 6) == [(start + 6, rest + 6, end + 6, delta) for start, rest, end, delta, *_ in spans]
