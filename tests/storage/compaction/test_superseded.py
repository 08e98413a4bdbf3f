"""The bits of superseded offsets against a set of them."""

from __future__ import annotations

import random

import pytest

from storage.compaction.superseded import SupersededOffsets

FIRST_OFFSET, END_OFFSET = 1_000, 1_100


@pytest.mark.parametrize("seed", range(20))
def test_a_range_is_superseded_when_each_of_its_offsets_is(seed: int) -> None:
    draw = random.Random(seed)
    superseded = SupersededOffsets(FIRST_OFFSET, END_OFFSET)
    offsets = {offset for offset in range(FIRST_OFFSET, END_OFFSET) if draw.random() < 0.9}
    for offset in offsets:
        superseded.bits[offset - FIRST_OFFSET >> 3] |= 1 << (offset - FIRST_OFFSET & 7)

    for start in range(FIRST_OFFSET - 2, END_OFFSET):
        for end in range(start + 1, END_OFFSET + 1):
            assert superseded.has_all(start, end) == offsets.issuperset(range(start, end)), (start, end)


def test_of_an_empty_range_nothing_is_known() -> None:
    superseded = SupersededOffsets(FIRST_OFFSET, FIRST_OFFSET)

    assert not superseded.is_kept
    assert not superseded.has_all(FIRST_OFFSET, END_OFFSET)
