"""The last batch of a leader's appends, kept in memory for followers: it is read as it is in the file, never when that changed."""

from __future__ import annotations

from storage.file_slice import FileSlice
from storage.log import Log
from storage.tail_cache import TAIL_SIZE_MAX, TailCache
from tests.storage.conftest import append, batch, read_bytes


def read_kept(log: Log, offset: int, *, end_offset: int | None = None, max_bytes: int = 1 << 20) -> bytes | None:
    """What a read gives from memory; None where it gives a slice of the file, or nothing."""
    records = log.read(offset, max_bytes=max_bytes, end_offset=log.log_end_offset if end_offset is None else end_offset)
    if isinstance(records, FileSlice):
        records.release()
        return None
    return records or None


def test_the_last_batch_comes_from_memory_as_it_is_in_the_file(log: Log) -> None:
    append(log, 2)
    log.tail = TailCache()
    append(log, 3, leader_epoch=5)

    kept = read_kept(log, 2)

    log.tail = None
    assert kept == read_bytes(log, 2)
    assert read_kept(log, 2) is None


def test_only_a_read_of_the_whole_last_batch_comes_from_memory(log: Log) -> None:
    log.tail = TailCache()
    append(log, 2)
    append(log, 2)

    assert read_kept(log, 0) is None
    assert read_kept(log, 3) is None
    assert read_kept(log, 2, end_offset=3) is None
    assert read_kept(log, 2, max_bytes=10) is None
    assert read_kept(log, 2) is not None


def test_after_a_truncation_what_replaced_the_batch_is_read(log: Log) -> None:
    log.tail = TailCache()
    append(log, key=b"old")
    log.truncate_to(0)
    log.append_as_follower(batch(key=b"new", partition_leader_epoch=1), now_ms=0)

    assert b"new" in read_bytes(log, 0)


def test_large_batches_and_those_of_partitions_without_followers_are_not_kept(log: Log) -> None:
    append(log, 1)
    assert read_kept(log, 0) is None

    log.tail = TailCache()
    append(log, 1, size=TAIL_SIZE_MAX)

    assert read_kept(log, 1) is None
