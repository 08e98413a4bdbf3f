"""Files of an archive on this machine, without Spark and without Java. It reads only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

LOCAL_SCHEME = "file:"


class FoundFile(NamedTuple):
    """A file of a listing. `path` is what its file system opens."""

    path: str
    size_bytes: int


class Files(Protocol):
    """What readers of an archive need of a file system."""

    def exists(self, path: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """Sorted. Empty if the directory does not exist."""
        ...

    def glob_files(self, pattern: str) -> list[FoundFile]:
        """The files that match, sorted by path."""
        ...

    def read_text(self, path: str) -> str: ...


def local_path_of(place: str) -> str | None:
    """The path of an archive on this machine, None for one that needs another file system."""
    if place.startswith(LOCAL_SCHEME):
        path = place.removeprefix(LOCAL_SCHEME)
        return path.removeprefix("//") if path.startswith("///") else path
    return None if "://" in place else place


class LocalFiles:
    """`Files` of this machine. It has no state."""

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def names(self, directory: str) -> list[str]:
        return sorted(path.name for path in Path(directory).iterdir()) if Path(directory).is_dir() else []

    def glob_files(self, pattern: str) -> list[FoundFile]:
        root, _, inside = pattern.partition("/topic=")
        found = []
        for path in Path(root).glob(f"topic={inside}"):
            try:
                found.append(FoundFile(str(path), path.stat().st_size))
            except FileNotFoundError:
                pass  # a job has removed it since it was listed
        return sorted(found)

    def read_text(self, path: str) -> str:
        return Path(path).read_text()
