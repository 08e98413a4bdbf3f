"""Files of stores: only small regular ones, and never a wait."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from broker.security.tls import files
from broker.security.tls.files import STORE_SIZE_MAX, StoreFileError, memory_file, read_store_file


def test_small_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"x" * STORE_SIZE_MAX)
    (tmp_path / "link").symlink_to(tmp_path / "store")

    assert len(read_store_file(str(tmp_path / "link"))) == STORE_SIZE_MAX


def test_what_is_no_small_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (STORE_SIZE_MAX + 1))
    os.mkfifo(tmp_path / "pipe")

    for path, why in (
        (tmp_path / "large", "has more than 1048576 bytes"),
        (tmp_path / "pipe", "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (tmp_path / "nowhere", "cannot be opened: No such file or directory"),
        (tmp_path / "a\0b", "cannot be opened: not a path"),
    ):
        with pytest.raises(StoreFileError, match=f"^{why}$"):
            read_store_file(str(path))


def test_memory_file_can_be_opened_again_and_again() -> None:
    with memory_file(b"key") as path:
        contents = [Path(path).read_bytes() for _ in range(2)]

    assert contents == [b"key", b"key"]
    assert not os.path.exists(path)


def test_without_memfd_the_file_is_for_this_user_alone_and_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(files.os, "memfd_create", raising=False)

    with memory_file(b"key") as path:
        modes = [stat.S_IMODE(os.stat(each).st_mode) for each in (path, os.path.dirname(path))]
        content = Path(path).read_bytes()

    assert (modes, content) == ([0o600, 0o700], b"key")
    assert not os.path.exists(path)
