"""Writes files with secrets: for this user alone from their first byte on."""

from __future__ import annotations

import os
from pathlib import Path

from storage.disk import PRIVATE_DIRECTORY, PRIVATE_FILE


def write_private(path: Path, text: str) -> None:
    """Make the file. Raises FileExistsError if there is one: its mode, and who has it open, would be another's. OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def make_private_directory(path: Path) -> None:
    """Make the directory, and those above it, unless it is there. OSError."""
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
