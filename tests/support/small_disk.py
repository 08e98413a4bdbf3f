"""A disk that gets full or read-only at a test's word: a tmpfs of a few megabytes. Needs root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

COMMAND_TIMEOUT_S = 120
FILLER = "filler"


def missing_small_disk() -> str | None:
    """What keeps small disks from being mounted here; None when nothing does."""
    return None if os.geteuid() == 0 else "mounting small disks needs root"


class SmallDisk:
    """Owns the mount at `mount_point`; `close` takes it away."""

    def __init__(self, mount_point: Path, size_bytes: int) -> None:
        self.mount_point = mount_point
        self.size_bytes = size_bytes
        mount_point.mkdir(parents=True, exist_ok=True)
        _command("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mount_point))

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.mount_point)
        return status.f_bavail * status.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all space but `leave_bytes`, rounded down to whole pages."""
        with (self.mount_point / FILLER).open("ab") as filler:
            os.posix_fallocate(filler.fileno(), filler.tell(), max(self.free_bytes - leave_bytes, 1))

    def free(self) -> None:
        """Give the space back that `fill` took, and as much again as the disk has."""
        (self.mount_point / FILLER).unlink(missing_ok=True)
        self.size_bytes *= 2
        _command("mount", "-o", f"remount,size={self.size_bytes}", str(self.mount_point))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.mount_point)], check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S)


def _command(*arguments: str) -> None:
    subprocess.run(arguments, check=True, timeout=COMMAND_TIMEOUT_S, capture_output=True)
