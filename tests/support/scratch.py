"""Where tests keep their files: those that write and sync thousands of small ones do it in memory, if there is enough."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY_FILES = Path("/dev/shm")
NEEDED_BYTES = 4 << 30
"""Some 1.5 GB are used; a container often has 64 MB there."""


def make_scratch(prefix: str, *, in_memory: bool) -> Path:
    """A new directory, for the caller to remove. On the disk where memory is short or no file system of it is there."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY_FILES if in_memory and _has_room() else None))


def _has_room() -> bool:
    if not os.access(MEMORY_FILES, os.W_OK) or shutil.disk_usage(MEMORY_FILES).free < NEEDED_BYTES:
        return False
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >= NEEDED_BYTES
