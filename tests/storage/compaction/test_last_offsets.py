"""The bits of the offsets that are the last of their key, against a set of them."""

from __future__ import annotations

import random

import pytest

from storage.compaction.last_offsets import LastOffsets

FIRST_OFFSET, END_OFFSET = 1_000, 1_100


@pytest.mark.parametrize("seed", range(4))
def test_flags_say_of_each_offset_whether_it_is_the_last_of_its_key(seed: int) -> None:
    draw = random.Random(seed)
    last_offsets = LastOffsets(FIRST_OFFSET, END_OFFSET)
    offsets = [offset for offset in range(FIRST_OFFSET, END_OFFSET) if draw.random() < 0.3]

    last_offsets.note(offsets)

    for start in range(FIRST_OFFSET, END_OFFSET):
        for end in range(start + 1, END_OFFSET + 1):
            assert last_offsets.flags(start, end) == bytes(offset in offsets for offset in range(start, end)), (start, end)


def test_batches_with_tombstones_are_told_by_their_base_offsets() -> None:
    last_offsets = LastOffsets(FIRST_OFFSET, END_OFFSET)

    for offset in range(FIRST_OFFSET, END_OFFSET, 3):
        last_offsets.note_tombstone(offset)

    assert [last_offsets.has_tombstone(offset) for offset in range(FIRST_OFFSET, END_OFFSET)] == [
        (offset - FIRST_OFFSET) % 3 == 0 for offset in range(FIRST_OFFSET, END_OFFSET)
    ]


@pytest.mark.parametrize("end_offset", [FIRST_OFFSET, END_OFFSET])
def test_of_an_empty_range_and_after_giving_up_nothing_is_known(end_offset: int) -> None:
    last_offsets = LastOffsets(FIRST_OFFSET, end_offset)
    assert last_offsets.is_kept == (end_offset == END_OFFSET)

    last_offsets.give_up()
    last_offsets.note_tombstone(FIRST_OFFSET)

    assert not last_offsets.is_kept
