"""TransactionIndex: the aborted transactions of one segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import CorruptFileError
from storage.transaction_index import AbortedTransaction, TransactionIndex

ENTRIES = [
    AbortedTransaction(producer_id=1, first_offset=0, last_offset=10, last_stable_offset=2),
    AbortedTransaction(producer_id=2, first_offset=2, last_offset=15, last_stable_offset=11),
    AbortedTransaction(producer_id=3, first_offset=12, last_offset=30, last_stable_offset=31),
]


def index_of(tmp_path: Path, entries: list[AbortedTransaction] = ENTRIES) -> TransactionIndex:
    index = TransactionIndex(tmp_path / "00000000000000000000.txnindex", 0)
    for entry in entries:
        index.append(entry)
    return index


def test_no_file_is_made_before_the_first_abort(tmp_path: Path) -> None:
    index = index_of(tmp_path, [])

    assert index.entries() == []
    assert index.collect(0, 100).aborted == []
    assert not index.path.exists()


def test_the_first_abort_is_found_by_who_looked_before_it(tmp_path: Path) -> None:
    """That there is no file is remembered, until there is one."""
    index = index_of(tmp_path, [])
    assert index.collect(0, 100).aborted == []

    index.append(ENTRIES[0])

    assert index.collect(0, 100).aborted == ENTRIES[:1]


def test_an_entry_is_written_in_kafkas_format(tmp_path: Path) -> None:
    index = index_of(tmp_path, ENTRIES[1:2])

    assert index.path.read_bytes().hex() == "0000" + "0000000000000002" * 2 + "000000000000000f" + "000000000000000b"


def test_entries_survive_a_kill(tmp_path: Path) -> None:
    index = index_of(tmp_path)

    reopened = TransactionIndex(index.path, 0)

    assert reopened.entries() == ENTRIES


def test_a_torn_last_entry_is_left_out_and_written_over(tmp_path: Path) -> None:
    index = index_of(tmp_path, ENTRIES[:2])
    index.path.write_bytes(index.path.read_bytes()[:-5])
    reopened = TransactionIndex(index.path, 0)

    assert reopened.entries() == ENTRIES[:1]
    reopened.append(ENTRIES[2])

    assert reopened.entries() == [ENTRIES[0], ENTRIES[2]]


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "expected", "is_complete"),
    [
        (0, 100, [1, 2, 3], False),
        (0, 12, [1, 2], True),
        (0, 2, [1], True),
        (11, 12, [2], True),
        (16, 31, [3], True),
        (31, 100, [], False),
    ],
)
def test_collect_finds_transactions_that_overlap(
    tmp_path: Path, start_offset: int, end_offset: int, expected: list[int], is_complete: bool
) -> None:
    found = index_of(tmp_path).collect(start_offset, end_offset)

    assert [entry.producer_id for entry in found.aborted] == expected
    assert found.is_complete is is_complete


@pytest.mark.parametrize(("offset", "expected"), [(31, 3), (30, 2), (15, 1), (0, 0)])
def test_truncate_drops_the_markers_at_or_above_the_offset(tmp_path: Path, offset: int, expected: int) -> None:
    index = index_of(tmp_path)

    index.truncate_to(offset)

    assert TransactionIndex(index.path, 0).entries() == ENTRIES[:expected]
    index.append(AbortedTransaction(9, 50, 60, 61))
    assert index.entries()[-1].producer_id == 9


def test_reset_leaves_nothing_and_begins_anew(tmp_path: Path) -> None:
    index = index_of(tmp_path)

    index.reset()
    assert index.entries() == []

    index.append(ENTRIES[0])
    assert index.entries() == ENTRIES[:1]


def test_an_unknown_version_is_corrupt(tmp_path: Path) -> None:
    index = index_of(tmp_path)
    index.path.write_bytes(b"\x00\x01" + index.path.read_bytes()[2:])

    with pytest.raises(CorruptFileError, match="version 1"):
        index.entries()
