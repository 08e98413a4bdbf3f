"""Closes the segment files that a test left open: one that stands for a killed process never closes its logs.

Thousands of such descriptors later a test fails that has nothing to do with them: py4j waits by select(), which takes none above 1,023.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SEGMENT_FILE = re.compile(r".*/\d{20}\.(log|txnindex)[^/]*")


@contextmanager
def closing_segment_files(root: Path) -> Iterator[None]:
    """On leaving, close the descriptors of segment files below `root` that were opened within, as the kernel does after a kill.

    Nothing in storage/ closes a descriptor from a finalizer, so no number is closed twice."""
    before = set(_segment_files(root))
    try:
        yield
    finally:
        for descriptor in _segment_files(root):
            if descriptor not in before:
                os.close(descriptor)


def _segment_files(root: Path) -> Iterator[int]:
    """Strings rather than paths: this runs twice in each of thousands of tests."""
    below = f"{root}/"
    for name in os.listdir("/dev/fd"):
        try:
            path = _path_of(int(name))
        except OSError:
            continue  # the descriptor of this very listing, or no file
        if path.startswith(below) and _SEGMENT_FILE.match(path):
            yield int(name)


def _path_of(descriptor: int) -> str:
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")
