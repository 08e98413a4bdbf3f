"""SegmentFile and FileSlice: the descriptor lives as long as somebody may still send from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.errors import StorageError
from storage.file_slice import FileSlice, SegmentFile


@pytest.fixture
def file(tmp_path: Path) -> SegmentFile:
    path = tmp_path / "x.log"
    path.write_bytes(b"0123456789")
    return SegmentFile.open(path)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_slice_reads_its_part_of_the_file(file: SegmentFile) -> None:
    piece = FileSlice(file, 2, 5)

    assert len(piece) == 5
    assert piece.read() == b"23456"


def test_descriptor_outlives_its_owner_while_a_slice_is_held(file: SegmentFile) -> None:
    fd = file.fd
    piece = FileSlice(file, 0, 10)

    file.release()

    assert is_open(fd)
    assert piece.read() == b"0123456789"


def test_descriptor_closes_with_the_last_slice(file: SegmentFile) -> None:
    fd = file.fd
    first, second = FileSlice(file, 0, 1), FileSlice(file, 1, 1)
    file.release()
    first.release()
    still_open = is_open(fd)

    second.release()

    assert still_open
    assert not is_open(fd)


def test_release_twice_counts_once(file: SegmentFile) -> None:
    piece = FileSlice(file, 0, 1)
    piece.release()

    piece.release()

    assert is_open(file.fd)


def test_read_past_the_end_is_a_storage_error(file: SegmentFile) -> None:
    piece = FileSlice(file, 8, 5)

    with pytest.raises(StorageError):
        piece.read()


def test_create_refuses_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"")

    with pytest.raises(FileExistsError):
        SegmentFile.open(tmp_path / "x.log", create=True)
