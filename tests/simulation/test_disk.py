"""The simulated disk reads back what was written, keeps what was synchronised, and may lose the rest."""

import errno
import os
import random

import pytest

from tests.simulation.disk import DiskView, ProcessDiedError, SimulatedDisk

OLD, NEW = b"o" * 3_000, b"n" * 3_000


def make(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), lambda: 1_750_000_000.0, lambda kind, text: None)


def write(view: DiskView, path: str, data: bytes, *, position: int = 0, is_synced: bool = False) -> int:
    fd = view.open(path, os.O_RDWR | os.O_CREAT)
    assert view.pwrite(fd, data, position) == len(data)
    if is_synced:
        view.fdatasync(fd)
    return fd


def read(view: DiskView, path: str) -> bytes:
    fd = view.open(path, os.O_RDONLY)
    return view.pread(fd, 1 << 20, 0)


def sync_directory(view: DiskView, path: str) -> None:
    view.fsync(view.open(path, os.O_RDONLY))


def test_a_killed_process_loses_nothing_but_its_descriptors() -> None:
    disk = make()
    view = disk.boot()
    fd = write(view, "/a", b"written, not synchronised")
    view.die()

    with pytest.raises(ProcessDiedError):
        view.pread(fd, 1, 0)
    assert read(disk.boot(), "/a") == b"written, not synchronised"


def test_what_was_synchronised_survives_every_power_cut() -> None:
    for seed in range(100):
        disk = make(seed)
        view = disk.boot()
        view.mkdir("/d")
        sync_directory(view, "/")
        write(view, "/d/a", OLD, is_synced=True)
        sync_directory(view, "/d")
        write(view, "/d/a", NEW, position=len(OLD))
        disk.cut_power()

        assert read(disk.boot(), "/d/a").startswith(OLD)


def test_power_cuts_leave_clean_cuts_holes_and_missing_files() -> None:
    shapes = set()
    for seed in range(200):
        disk = make(seed)
        view = disk.boot()
        write(view, "/a", NEW)
        disk.cut_power()
        left = read(disk.boot(), "/a") if disk.boot().exists("/a") else None
        shapes.add("missing" if left is None else "whole" if left == NEW else "hole" if b"\0" in left else "cut" if left else "empty")

    assert shapes == {"missing", "whole", "hole", "cut", "empty"}


def test_a_replaced_file_is_old_or_new_if_the_content_was_synchronised_first() -> None:
    found = set()
    for seed in range(100):
        disk = make(seed)
        view = disk.boot()
        write(view, "/a", OLD, is_synced=True)
        sync_directory(view, "/")
        write(view, "/a.tmp", NEW, is_synced=True)
        view.replace("/a.tmp", "/a")
        disk.cut_power()
        found.add(read(disk.boot(), "/a"))

    assert found == {OLD, NEW}


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    disk = make()
    disk.capacity_bytes = 100
    view = disk.boot()
    fd = view.open("/a", os.O_RDWR | os.O_CREAT)

    assert view.pwrite(fd, bytes(150), 0) == 100
    with pytest.raises(OSError) as refused:
        view.pwrite(fd, b"x", 100)
    assert refused.value.errno == errno.ENOSPC


def test_a_failed_directory_answers_nothing_and_leaves_its_neighbours_alone() -> None:
    disk = make()
    view = disk.boot()
    view.mkdir("/d")
    inside, beside = write(view, "/d/a", OLD), write(view, "/d2", OLD)

    disk.failed_dir = "/d"

    for call in (lambda: view.pread(inside, 1, 0), lambda: view.fdatasync(inside), lambda: view.scan("/d"), lambda: view.stat("/d/a")):
        with pytest.raises(OSError) as failed:
            call()
        assert failed.value.errno == errno.EIO
    assert view.pread(beside, 1, 0) == OLD[:1]
    view.close(inside)


def test_a_lock_excludes_the_next_process_until_this_one_dies() -> None:
    disk = make()
    first, second = disk.boot(), disk.boot()

    assert first.lock(write(first, "/.lock", b""))
    assert not second.lock(write(second, "/.lock", b""))
    first.die()
    assert second.lock(write(second, "/.lock", b""))


def test_a_move_into_another_directory_leaves_one_name_after_a_power_cut() -> None:
    found = set()
    for seed in range(100):
        disk = make(seed)
        view = disk.boot()
        view.mkdir("/d")
        write(view, "/a", OLD, is_synced=True)
        sync_directory(view, "/")
        view.replace("/a", "/d/a")
        if seed % 2:
            sync_directory(view, "/d")
        disk.cut_power()

        names = [path for path in ("/a", "/d/a") if disk.boot().exists(path)]
        assert len(names) == 1
        assert read(disk.boot(), names[0]) == OLD
        found.update(names)
    assert found == {"/a", "/d/a"}
