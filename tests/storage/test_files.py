"""Names of Kafka's log directory layout, and the operations that must survive a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import CorruptFileError, StorageError
from storage.files import (
    LOG_SUFFIX,
    TopicPartition,
    delete_if_exists,
    delete_tree,
    deleted_directory_name,
    find_offset,
    find_topic_partition,
    is_deleted_directory,
    lock_directory,
    offset_file_name,
    partition_directory_name,
    read_file,
    read_text_file,
    replace_file,
)

UNIQUE = "0123456789abcdef0123456789abcdef"


def test_segment_file_names_have_twenty_digits() -> None:
    assert offset_file_name(368769, LOG_SUFFIX) == "00000000000000368769.log"


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_offset_is_found_in_its_file_name(offset: int) -> None:
    assert find_offset(offset_file_name(offset, LOG_SUFFIX), LOG_SUFFIX) == offset


@pytest.mark.parametrize(
    "name", ["00000000000000000001.index", "1.log", "00000000000000000001.log.deleted", "x.log", ".log", "leader-epoch"]
)
def test_other_names_have_no_offset(name: str) -> None:
    assert find_offset(name, LOG_SUFFIX) is None


@pytest.mark.parametrize("topic", ["orders", "a-b-7", "with.dots_and-dashes-", "x" * 249])
def test_partition_directory_name_is_read_back(topic: str) -> None:
    assert find_topic_partition(partition_directory_name(topic, 12)) == TopicPartition(topic, 12)


@pytest.mark.parametrize("name", ["orders", "orders-", "-1", "orders-x", f"orders-1.{UNIQUE}-delete", f"orders-1.{UNIQUE}-future"])
def test_other_directories_are_no_live_partitions(name: str) -> None:
    assert find_topic_partition(name) is None


def test_directory_marked_for_deletion_keeps_its_partition_in_the_name() -> None:
    name = deleted_directory_name("orders", 3, UNIQUE)

    assert name == f"orders-3.{UNIQUE}-delete"
    assert is_deleted_directory(name)


def test_a_topic_that_only_looks_deleted_is_a_live_partition() -> None:
    assert not is_deleted_directory("to-delete")
    assert find_topic_partition("to-delete-0") == TopicPartition("to-delete", 0)


def test_long_topic_names_are_cut_to_fit_a_file_name() -> None:
    name = deleted_directory_name("x" * 249, 100, UNIQUE)

    assert len(name) == 255
    assert is_deleted_directory(name)


@pytest.mark.parametrize("fsync", [True, False])
def test_replace_file_leaves_only_the_new_content(tmp_path: Path, fsync: bool) -> None:
    path = tmp_path / "checkpoint"
    replace_file(path, b"old and longer", fsync=fsync)

    replace_file(path, b"new", fsync=fsync)

    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_a_kill_before_the_rename_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    replace_file(path, b"old")
    (tmp_path / "checkpoint.tmp").write_bytes(b"half of the ne")

    assert read_file(path) == b"old"
    replace_file(path, b"newer")
    assert read_file(path) == b"newer"


def test_a_missing_file_is_none_and_bad_utf_8_is_corrupt(tmp_path: Path) -> None:
    assert read_file(tmp_path / "absent") is None
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    with pytest.raises(CorruptFileError):
        read_text_file(tmp_path / "binary")


def test_operating_system_errors_become_storage_errors_that_name_the_path(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "file"

    with pytest.raises(StorageError, match=r"cannot write .*absent/file") as caught:
        replace_file(path, b"x")

    assert caught.value.path == path


def test_delete_tells_whether_the_file_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert delete_if_exists(tmp_path / "file") is True
    assert delete_if_exists(tmp_path / "file") is False


def test_a_locked_directory_is_refused_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    descriptor = lock_directory(tmp_path)

    with pytest.raises(StorageError, match="in use by another broker"):
        lock_directory(tmp_path)

    os.close(descriptor)
    os.close(lock_directory(tmp_path))


def test_the_lock_excludes_a_java_broker_in_another_process(tmp_path: Path) -> None:
    """Java's FileLock is a POSIX record lock, which flock does not conflict with."""
    descriptor = lock_directory(tmp_path)
    program = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"

    finished = subprocess.run([sys.executable, "-c", program, tmp_path / ".lock"], capture_output=True, timeout=30, check=False)

    os.close(descriptor)
    assert b"BlockingIOError" in finished.stderr


def test_a_tree_is_deleted_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "inner" / "empty").mkdir(parents=True)
    (tree / "inner" / "file").touch()
    (tree / "link").symlink_to(outside)

    delete_tree(tree)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "kept").exists()


def test_deleting_a_tree_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    delete_tree(tmp_path / "absent")

    assert list(tmp_path.iterdir()) == []
