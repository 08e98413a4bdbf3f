"""Renamed directories of deleted partitions that wait for their removal, for file.delete.delay.ms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from storage import retention
from storage.disk import Disk
from storage.files import delete_tree


class DeletedDirectories:
    """The paths in one log directory whose delays began together. `due_ms` is set by the first check after that."""

    __slots__ = ("delay_ms", "due_ms", "log_dir", "names")

    def __init__(self, log_dir: Path, names: Iterable[str], delay_ms: int) -> None:
        self.log_dir = log_dir
        self.names = tuple(names)
        self.delay_ms = delay_ms
        self.due_ms: int | None = None

    def __iter__(self) -> Iterator[Path]:
        return (self.log_dir / name for name in self.names)


class DeletionWork(NamedTuple):
    """Files and directories whose delay is over."""

    files: tuple[retention.PendingDeletion, ...]
    directories: tuple[DeletedDirectories, ...]
    disk: Disk

    def run(self) -> None:
        """Remove them; blocks. Those that cannot be removed stay for the next start."""
        for deletion in self.files:
            retention.delete_files(deletion, self.disk)
        for directory in chain.from_iterable(self.directories):
            delete_tree(directory, self.disk)
