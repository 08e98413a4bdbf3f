"""The bits of superseded offsets against a set of them."""

from __future__ import annotations

import random

import pytest

from storage.compaction.superseded import SupersededOffsets

FIRST_OFFSET, END_OFFSET = 1_000, 1_100


@pytest.mark.parametrize("seed", range(4))
def test_flags_say_of_each_offset_whether_it_is_superseded(seed: int) -> None:
    draw = random.Random(seed)
    superseded = SupersededOffsets(FIRST_OFFSET, END_OFFSET)
    offsets = [offset for offset in range(FIRST_OFFSET, END_OFFSET) if draw.random() < 0.9]

    superseded.note([*offsets, -1, FIRST_OFFSET - 1])

    for start in range(FIRST_OFFSET, END_OFFSET):
        for end in range(start + 1, END_OFFSET + 1):
            assert superseded.flags(start, end) == bytes(offset in offsets for offset in range(start, end)), (start, end)


def test_of_what_lies_below_the_range_nothing_is_known() -> None:
    superseded = SupersededOffsets(FIRST_OFFSET, END_OFFSET)

    assert superseded.flags(FIRST_OFFSET - 1, END_OFFSET) is None


@pytest.mark.parametrize("end_offset", [FIRST_OFFSET, END_OFFSET])
def test_of_an_empty_range_and_after_giving_up_nothing_is_known(end_offset: int) -> None:
    superseded = SupersededOffsets(FIRST_OFFSET, end_offset)
    superseded.note([FIRST_OFFSET])
    superseded.give_up()

    assert not superseded.is_kept
    assert superseded.flags(FIRST_OFFSET, END_OFFSET) is None
