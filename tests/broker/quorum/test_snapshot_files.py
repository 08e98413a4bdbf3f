from __future__ import annotations

from pathlib import Path

import pytest

from broker.quorum.raft_log import OffsetAndEpoch
from broker.quorum.snapshot_files import SnapshotFiles, snapshot_name
from storage.errors import StorageError

OLD, NEW = OffsetAndEpoch(5, 1), OffsetAndEpoch(9, 3)


def test_names_are_kafkas() -> None:
    assert snapshot_name(NEW) == "00000000000000000009-0000000003.checkpoint"


def test_a_snapshot_that_is_being_fetched_is_none_until_it_is_whole(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.begin(NEW)
    files.append(NEW, 0, b"one")
    files.append(NEW, 3, b"two")
    before = (NEW in files, files.latest)

    path = files.finish(NEW)

    assert before == (False, None)
    assert path.read_bytes() == b"onetwo" and NEW in files
    assert files.read(NEW, 2, 100) == (b"etwo", 6)


def test_half_a_snapshot_is_removed_by_the_next_start(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.begin(NEW)
    files.append(NEW, 0, b"half")

    again = SnapshotFiles(tmp_path)

    assert again.all() == [] and list(tmp_path.iterdir()) == []


def test_a_fetch_that_begins_again_begins_empty(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.begin(NEW)
    files.append(NEW, 0, b"other")

    files.begin(NEW)
    files.append(NEW, 0, b"own")

    assert files.finish(NEW).read_bytes() == b"own"


def test_a_piece_at_another_place_is_refused(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    files.begin(NEW)
    files.append(NEW, 0, b"one")

    with pytest.raises(StorageError):
        files.append(NEW, 2, b"two")


def test_what_was_finished_is_known_after_a_kill_and_ordered(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    for snapshot in (NEW, OLD):
        files.begin(snapshot)
        files.append(snapshot, 0, b"x")
        files.finish(snapshot)
    (tmp_path / "bootstrap.checkpoint").touch()

    again = SnapshotFiles(tmp_path)

    assert again.all() == [OLD, NEW] and (again.earliest, again.latest) == (OLD, NEW)
    assert again.forget(OLD) == tmp_path / snapshot_name(OLD) and again.read(OLD, 0, 1) is None
