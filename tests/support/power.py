"""A disk whose power can be cut: ext4 on a loop device over a file in memory, shut down by EXT4_IOC_SHUTDOWN.

After the cut every call on the file system fails with EIO, nothing that was not fsynced is there any more, and the
journal is replayed at the next mount, as after a real power failure. Needs root and a loop device.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
SHUTDOWN_WITHOUT_LOG_FLUSH = 2
IMAGE_BYTES = 1024 * 1024 * 1024
MEMORY_DIR = Path("/dev/shm")
COMMAND_TIMEOUT_S = 120
PAGE_BYTES = 4096
FILLER = "filler"
SYNC_FILE_RANGE_WRITE = 2


def missing_power_cut() -> str | None:
    """What keeps power cuts from being tried here; None when nothing does."""
    if os.geteuid() != 0:
        return "power cuts need root"
    if not Path("/dev/loop-control").exists():
        return "power cuts need loop devices (/dev/loop-control)"
    if not MEMORY_DIR.is_dir() or shutil.which("mkfs.ext4") is None:
        return "power cuts need /dev/shm and mkfs.ext4"
    return None


class PowerCutDisk:
    """Owns the image and its mount at `mount_point`; `close` takes both away."""

    def __init__(self, mount_point: Path, seed: int, *, size_bytes: int = IMAGE_BYTES) -> None:
        self.mount_point = mount_point
        self._random = random.Random(seed)
        self._image = MEMORY_DIR / f"barnabas-power-{os.getpid()}-{mount_point.name}.img"
        mount_point.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(size_bytes)
        _command("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mounts the image; after a cut this replays the journal."""
        _command("mount", "-o", "loop", str(self._image), str(self.mount_point))

    def cut(self) -> None:
        """Cuts the power. Some dirty pages reach the disk just before, out of order, as write-back leaves them."""
        self._write_back_some_pages()
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("=I", SHUTDOWN_WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def fill(self) -> None:
        """Take all space that is left."""
        with (self.mount_point / FILLER).open("ab") as filler:
            status = os.statvfs(self.mount_point)
            left = status.f_bfree * status.f_frsize
            while left >= PAGE_BYTES:  # some of it is for the file system's own blocks
                try:
                    os.posix_fallocate(filler.fileno(), filler.tell(), left)
                    filler.seek(0, os.SEEK_END)
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise
                    left //= 2

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.mount_point / FILLER).unlink(missing_ok=True)

    def unmount(self) -> None:
        _command("umount", str(self.mount_point))

    def close(self) -> None:
        subprocess.run(["umount", str(self.mount_point)], check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S)
        self._image.unlink(missing_ok=True)

    def _write_back_some_pages(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for path in sorted(self.mount_point.rglob("*.log")):
            page_count = path.stat().st_size // PAGE_BYTES + 1
            with path.open("rb") as file:
                for page in self._random.sample(range(page_count), k=self._random.randrange(min(3, page_count + 1))):
                    offset = ctypes.c_int64(page * PAGE_BYTES)
                    libc.sync_file_range(file.fileno(), offset, ctypes.c_int64(PAGE_BYTES), ctypes.c_uint(SYNC_FILE_RANGE_WRITE))


def _command(*arguments: str) -> None:
    subprocess.run(arguments, check=True, timeout=COMMAND_TIMEOUT_S, capture_output=True)
