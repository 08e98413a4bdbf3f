"""The machine's disk as storage/ sees it: the functions of `os`, and the few that are not."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import pytest

from storage.disk import SYSTEM_DISK, DirectoryEntry, Disk, SystemDisk
from tests.simulation.disk import DiskView

OWN = {"can_syncfs", "exists", "lock", "scan", "syncfs"}
CALLS = {name for name, _ in inspect.getmembers(Disk, inspect.isfunction) if not name.startswith("_")}


def test_calls_are_the_functions_of_os_themselves() -> None:
    """Nothing is paid for the adapter. Not on macOS, where fdatasync is missing."""
    assert {name for name in CALLS - OWN if getattr(SYSTEM_DISK, name) is not getattr(os, name)} <= {"fdatasync", "posix_fadvise"}
    if sys.platform.startswith("linux"):
        assert SYSTEM_DISK.fdatasync is os.fdatasync and SYSTEM_DISK.posix_fadvise is os.posix_fadvise


@pytest.mark.parametrize("disk", [SystemDisk, DiskView])
def test_disks_have_every_call(disk: type) -> None:
    assert {name for name in dir(disk) if not name.startswith("_")} >= CALLS


def test_scan_names_directories(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "directory")

    entries = SYSTEM_DISK.scan(tmp_path)

    assert sorted(entries) == [DirectoryEntry("directory", True), DirectoryEntry("file", False), DirectoryEntry("link", True)]


def test_a_file_is_synchronised_while_it_is_open_and_not_afterwards(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"x")
    SYSTEM_DISK.fdatasync(descriptor)
    if SYSTEM_DISK.can_syncfs():
        SYSTEM_DISK.syncfs(descriptor)
    os.close(descriptor)

    with pytest.raises(OSError, match="Bad file descriptor"):
        SYSTEM_DISK.fdatasync(descriptor)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_what_the_kernel_cannot_synchronise_is_reported() -> None:
    """A pipe has no data on a disk: a call that never reached the kernel would not find out."""
    reading, writing = os.pipe()

    with pytest.raises(OSError):
        SYSTEM_DISK.fdatasync(writing)

    os.close(reading)
    os.close(writing)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="syncfs is Linux only")
def test_syncfs_reports_a_bad_descriptor() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        SYSTEM_DISK.syncfs(10**6)
