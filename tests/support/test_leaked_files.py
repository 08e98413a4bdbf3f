"""What a test leaves open is closed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.leaked_files import closing_segment_files


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_segment_files_opened_within_are_closed(tmp_path: Path) -> None:
    segment, deleted, other, outside = (
        tmp_path / "data" / "t-0" / f"{0:020}.log",
        tmp_path / "data" / "t-0" / f"{7:020}.log",
        tmp_path / "data" / "server.log",
        tmp_path / f"{0:020}.log",
    )
    segment.parent.mkdir(parents=True)
    kept = os.open(segment, os.O_RDWR | os.O_CREAT)

    with closing_segment_files(tmp_path / "data"):
        descriptors = [os.open(path, os.O_RDWR | os.O_CREAT) for path in (segment, deleted, other, outside)]
        deleted.unlink()

    assert [is_open(descriptor) for descriptor in (kept, *descriptors)] == [True, False, False, True, True]
    for descriptor in (kept, *descriptors[2:]):
        os.close(descriptor)


def test_a_failing_test_s_files_are_closed_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), closing_segment_files(tmp_path):
        descriptor = os.open(tmp_path / f"{0:020}.log", os.O_RDWR | os.O_CREAT)
        raise ZeroDivisionError

    assert not is_open(descriptor)
