"""Residency of pages, on a file system that can drop them; where it cannot, everything counts as resident."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.network.page_cache import is_resident, read_in

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
