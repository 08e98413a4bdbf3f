"""Residency of pages, on a file system that can drop them; where it cannot, everything counts as resident."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.page_cache import ColdRead, is_resident, not_waiting, read_at, read_in, waiting

SIZE = 8 * 1024 * 1024


@pytest.fixture
def dropped(tmp_path: Path) -> int:
    """A file that was written and dropped from the page cache."""
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, SIZE, os.POSIX_FADV_DONTNEED)
    return fd


def test_what_was_read_in_is_resident(dropped: int) -> None:
    read_in(dropped, 1_000_000, 3_000_000)

    assert is_resident(dropped, 1_000_000, 3_000_000)
    os.close(dropped)


def test_the_end_of_the_file_ends_reading(dropped: int) -> None:
    read_in(dropped, SIZE - 10, 1_000_000)

    assert is_resident(dropped, SIZE - 10, 10)
    os.close(dropped)


def test_asking_does_not_bring_pages_in(dropped: int) -> None:
    before = is_resident(dropped, SIZE // 2, 100_000)

    assert is_resident(dropped, SIZE // 2, 100_000) == before
    os.close(dropped)


def test_a_read_that_may_not_wait_says_what_is_missing_and_works_once_that_is_there(dropped: int) -> None:
    with waiting():
        expected = None if not is_resident(dropped, 1_000_000, 5_000) else read_at(dropped, 5_000, 1_000_000)
    try:
        with not_waiting:
            read = read_at(dropped, 5_000, 1_000_000)
    except ColdRead as cold:
        assert expected is None, "what is resident needs no disk"
        cold.bring_in()
        with not_waiting:
            read = read_at(dropped, 5_000, 1_000_000)

    assert read == os.pread(dropped, 5_000, 1_000_000)
    os.close(dropped)


def test_a_read_that_may_not_wait_ends_with_the_file(dropped: int) -> None:
    read_in(dropped, SIZE - 100, 100)

    with not_waiting:
        assert read_at(dropped, 5_000, SIZE - 100) == os.pread(dropped, 100, SIZE - 100)
        assert read_at(dropped, 5_000, SIZE) == b""
    os.close(dropped)


def test_work_that_must_not_end_half_way_waits(dropped: int) -> None:
    with not_waiting, waiting():
        assert len(read_at(dropped, 5_000, 3_000_000)) == 5_000
    os.close(dropped)


def test_a_closed_file_can_still_be_brought_in(dropped: int) -> None:
    cold = ColdRead(dropped, 0, 4096)
    os.close(dropped)

    cold.bring_in()

    with pytest.raises(OSError, match="Bad file descriptor"):
        cold.bring_in()  # its own descriptor is closed with the first
