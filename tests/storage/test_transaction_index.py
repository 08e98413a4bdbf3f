"""TransactionIndex: the aborted transactions of one segment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage import transaction_index
from storage.disk import SYSTEM_DISK
from storage.errors import CorruptFileError
from storage.page_cache import ColdRead, not_waiting
from storage.transaction_index import AbortedTransaction, TransactionIndex, TransactionSearch

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


class PlainIndex:
    """The entries in a list, which a search walks from the first on, as Kafka walks its file."""

    def __init__(self) -> None:
        self.entries: list[AbortedTransaction] = []

    def collect(self, start_offset: int, end_offset: int) -> TransactionSearch:
        aborted: list[AbortedTransaction] = []
        for entry in self.entries:
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                aborted.append(entry)
            if entry.last_stable_offset >= end_offset:
                return TransactionSearch(aborted, is_complete=True)
        return TransactionSearch(aborted, is_complete=False)

    def append_next(self, random_source: random.Random) -> AbortedTransaction:
        """An abort of one of a few open transactions, of which the oldest may stay open for long."""
        previous = self.entries[-1] if self.entries else AbortedTransaction(0, 0, 0, 0)
        last_offset = previous.last_offset + random_source.randint(2, 9)
        first_offset = random_source.randint(previous.last_stable_offset, last_offset - 1)
        is_held = random_source.random() < 0.9
        stable_offset = previous.last_stable_offset if is_held else random_source.randint(previous.last_stable_offset, last_offset + 1)
        self.entries.append(AbortedTransaction(len(self.entries), first_offset, last_offset, stable_offset))
        return self.entries[-1]

    def truncate_to(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]


def collect_in_steps(index: TransactionIndex, start_offset: int, end_offset: int) -> TransactionSearch:
    while True:
        try:
            with not_waiting:
                return index.collect(start_offset, end_offset)
        except ColdRead as cold:
            cold.bring_in()


@pytest.mark.parametrize("seed", range(8))
def test_a_search_finds_what_a_walk_over_all_entries_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(transaction_index, "BLOCK_ENTRIES", 4)
    monkeypatch.setattr(transaction_index, "STEP_ENTRIES", 10)
    random_source = random.Random(seed)
    plain, index = PlainIndex(), index_of(tmp_path, [])

    for _ in range(400):
        index.append(plain.append_next(random_source))
        end = plain.entries[-1].last_offset + 2
        if random_source.random() < 0.03:
            offset = random_source.randrange(max(end - 60, 0), end)
            plain.truncate_to(offset)
            index.truncate_to(offset)
        elif random_source.random() < 0.05:
            index.close()
            index = TransactionIndex(index.path, 0)
        start_offset = random_source.randrange(end)
        end_offset = start_offset + random_source.choice([1, 5, 100, end])
        assert collect_in_steps(index, start_offset, end_offset) == plain.collect(start_offset, end_offset)

    assert index.entries() == plain.entries
    assert index.count == len(plain.entries)


def test_a_search_reads_one_block_of_many(tmp_path: Path) -> None:
    """An index of 10,000 entries; the disk counts the bytes."""
    content = b"".join(transaction_index._ENTRY.pack(0, 7, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(10_000))
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(content)
    read_sizes: list[int] = []

    class CountingDisk:
        def __getattr__(self, name: str) -> object:
            return getattr(SYSTEM_DISK, name)

        def pread(self, fd: int, size: int, position: int) -> bytes:
            read_sizes.append(size)
            return SYSTEM_DISK.pread(fd, size, position)

    index = TransactionIndex(path, 0, CountingDisk())  # type: ignore[arg-type]
    index.collect(0, 1)
    read_sizes.clear()

    found = index.collect(50_000, 50_020)

    assert [each.first_offset for each in found.aborted] == [50_000, 50_010]
    assert found.is_complete
    assert sum(read_sizes) <= 2 * transaction_index.BLOCK_ENTRIES * transaction_index.ENTRY_SIZE
