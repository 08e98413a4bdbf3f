"""LeaderEpochFileCache: where each epoch began, and where a follower must truncate."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.leader_epochs import EpochEndOffset, EpochEntry, LeaderEpochFileCache

UNDEFINED = EpochEndOffset(-1, -1)


def cache_of(tmp_path: Path, *entries: tuple[int, int]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(tmp_path / "leader-epoch-checkpoint")
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def pairs(cache: LeaderEpochFileCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries()]


def write(cache: LeaderEpochFileCache) -> None:
    """As the log's flush does, in a thread."""
    cache.take_write().write()


def reopened(cache: LeaderEpochFileCache) -> list[tuple[int, int]]:
    return pairs(LeaderEpochFileCache(cache.path))


def test_an_empty_cache_knows_nothing(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)

    assert (cache.latest_epoch, cache.earliest_entry) == (None, None)
    assert cache.end_offset_for(0, 10) == UNDEFINED


def test_epochs_are_written_in_kafkas_format(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (0, 0), (3, 40))

    write(cache)

    assert cache.path.read_bytes() == b"0\n2\n0 0\n3 40\n"
    assert reopened(cache) == [(0, 0), (3, 40)]


def test_assigning_an_epoch_writes_nothing(tmp_path: Path) -> None:
    """A broker may begin to lead a thousand partitions at once; the flush of each log writes its file."""
    cache = cache_of(tmp_path, (0, 0), (3, 40))

    assert cache.entries()[-1] == EpochEntry(3, 40)
    assert not cache.path.exists()


def test_assigning_the_latest_epoch_again_changes_nothing(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (2, 10))

    assert not cache.assign(2, 25)

    assert pairs(cache) == [(2, 10)]
    assert cache.changes_count == 1


def test_of_two_writes_at_once_the_newer_content_stays(tmp_path: Path) -> None:
    """Two flushes of a log may run at once, in threads that take turns as they like."""
    cache = cache_of(tmp_path, (0, 0))
    older = cache.take_write()
    cache.assign(3, 40)
    newer = cache.take_write()

    newer.write()
    older.write()

    assert reopened(cache) == [(0, 0), (3, 40)]


def test_a_write_that_was_taken_before_a_clear_brings_nothing_back(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (0, 0))
    write(cache)
    cache.assign(3, 40)
    older = cache.take_write()

    cache.clear()
    older.write()

    assert reopened(cache) == []


def test_nothing_is_written_into_a_directory_that_the_log_has_left(tmp_path: Path) -> None:
    """Another topic of the same name may have it."""
    cache = cache_of(tmp_path, (0, 0))
    work = cache.take_write()

    cache.close()
    work.write()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([(1, 10), (2, 20), (4, 40)], [(1, 10), (2, 20), (4, 40)], id="as the file says"),
        pytest.param([(1, 10), (2, 20), (4, 40), (5, 60)], [(1, 10), (2, 20), (4, 40), (5, 60)], id="an epoch that the file has not"),
        pytest.param([(1, 10), (4, 45)], [(1, 10), (2, 20), (4, 40)], id="compaction took an epoch's records"),
        pytest.param([(1, 10), (3, 20)], [(1, 10), (3, 20)], id="cut, then another epoch at the same place"),
        pytest.param([(1, 10), (1, 20), (3, 40)], [(1, 10), (3, 40)], id="cut, then the older epoch went on"),
        pytest.param([(1, 10), (1, 15), (1, 25)], [(1, 10)], id="cut, and a batch reaches over the place"),
        pytest.param([(0, 15)], [(0, 15)], id="nothing of the file is right"),
        pytest.param([(1, 5), (1, 8), (2, 20)], [(1, 5), (2, 20), (4, 40)], id="deleted records are back"),
    ],
)
def test_recovery_believes_the_batches(tmp_path: Path, batches: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """After a kill the file may be of before a truncation, or without the epochs that were not flushed."""
    cache = cache_of(tmp_path, (1, 10), (2, 20), (4, 40))

    for epoch, offset in batches:
        cache.confirm(epoch, offset)

    assert pairs(cache) == expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((4, 30), [(1, 10), (2, 20), (4, 30)]),
        ((4, 20), [(1, 10), (4, 20)]),
        ((4, 5), [(4, 5)]),
        ((1, 40), [(1, 40)]),
        ((2, 15), [(1, 10), (2, 15)]),
    ],
)
def test_entries_that_contradict_a_new_one_are_dropped(tmp_path: Path, new: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    cache = cache_of(tmp_path, (1, 10), (2, 20))

    cache.assign(*new)
    write(cache)

    assert pairs(cache) == reopened(cache) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        pytest.param(-1, UNDEFINED, id="undefined"),
        pytest.param(7, UNDEFINED, id="above all"),
        pytest.param(6, EpochEndOffset(6, 100), id="the latest ends at the log's end"),
        pytest.param(4, EpochEndOffset(4, 60), id="known, ends where the next begins"),
        pytest.param(5, EpochEndOffset(4, 60), id="unknown between, the floor epoch"),
        pytest.param(1, EpochEndOffset(1, 20), id="below all, the first known start"),
    ],
)
def test_end_offset_for(tmp_path: Path, epoch: int, expected: EpochEndOffset) -> None:
    cache = cache_of(tmp_path, (2, 20), (4, 40), (6, 60))

    assert cache.end_offset_for(epoch, 100) == expected


@pytest.mark.parametrize(("offset", "expected"), [(19, None), (20, 2), (39, 2), (40, 4), (1000, 4)])
def test_epoch_for_offset(tmp_path: Path, offset: int, expected: int | None) -> None:
    assert cache_of(tmp_path, (2, 20), (4, 40)).find_epoch_for_offset(offset) == expected


@pytest.mark.parametrize(
    ("end_offset", "expected"), [(61, [(2, 20), (4, 40), (6, 60)]), (60, [(2, 20), (4, 40)]), (41, [(2, 20), (4, 40)]), (20, []), (0, [])]
)
def test_truncate_from_end_drops_epochs_that_begin_there(tmp_path: Path, end_offset: int, expected: list[tuple[int, int]]) -> None:
    cache = cache_of(tmp_path, (2, 20), (4, 40), (6, 60))

    cache.truncate_from_end(end_offset)
    write(cache)

    assert pairs(cache) == reopened(cache) == expected


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (19, [(2, 20), (4, 40), (6, 60)]),
        (20, [(2, 20), (4, 40), (6, 60)]),
        (39, [(2, 39), (4, 40), (6, 60)]),
        (40, [(4, 40), (6, 60)]),
        (75, [(6, 75)]),
    ],
)
def test_truncate_from_start_keeps_the_epoch_that_holds_the_offset(
    tmp_path: Path, start_offset: int, expected: list[tuple[int, int]]
) -> None:
    cache = cache_of(tmp_path, (2, 20), (4, 40), (6, 60))

    cache.truncate_from_start(start_offset)
    write(cache)

    assert pairs(cache) == reopened(cache) == expected


def test_clear_removes_the_file_at_once(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, (2, 20))
    write(cache)

    cache.clear()

    assert pairs(cache) == reopened(cache) == []


@pytest.mark.parametrize("content", ["0\n1\n1\n", "0\n1\n1 -1\n", "0\n2\n1 1\n", "0\n1\na b\n"])
def test_a_malformed_file_counts_as_missing_and_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(content)

    cache = cache_of(tmp_path)

    assert cache.is_corrupt
    assert cache.entries() == []
