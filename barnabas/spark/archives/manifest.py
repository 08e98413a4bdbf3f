"""Which files a folder of a topic and day has to have: `_files` in it, a line with size and name for each.

The job that changes a folder notes it afterwards. So a file that is noted and not there has been lost, and a file that is there and not
noted is of a batch whose publication still runs, or was published by a version that noted nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .local_files import Files

NAME = "_files"
END = "end"
"""The last line: without it the file is not whole."""


class ChangedFiles(Files, Protocol):
    """`write_text` writes `<path>.writing` and then moves it. A file that is replaced may be missing for a moment."""

    def write_text(self, path: str, text: str) -> None: ...


def read_manifest(files: Files, folder: str) -> Mapping[str, int] | None:
    """The size in bytes by file's name; None for a folder without one."""
    for path in (f"{folder}/{NAME}", f"{folder}/{NAME}.writing"):  # the second is what a kill in the middle of a replacement leaves
        if files.exists(path):
            *lines, end = files.read_text(path).splitlines() or [""]
            if end == END:
                return {name: int(size) for size, name in (line.split(" ", 1) for line in lines)}
    return None


def write_manifest(files: ChangedFiles, folder: str, sizes: Mapping[str, int]) -> None:
    files.write_text(f"{folder}/{NAME}", manifest_text(sizes))


def manifest_text(sizes: Mapping[str, int]) -> str:
    return "".join(f"{size} {name}\n" for name, size in sorted(sizes.items())) + END + "\n"
