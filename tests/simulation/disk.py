"""A simulated disk: a page cache over durable pages, with the calls of `os` that the storage makes.

What was written is read back at once, as from a page cache. Only the fsync family makes it durable. A power cut keeps a random subset
of the pages that were not synchronised (a file may then hold zeros and valid later data), and of each directory's creations, renames
and deletions a random beginning. That is harsher than ext4 in its default mode, and no harsher than what file systems promise.

A killed process loses nothing but its descriptors and locks. Faults are switched on from outside: see SimulatedDisk.
"""

from __future__ import annotations

import errno
import functools
import os
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from storage.disk import DirectoryEntry, PathLike
from tests.simulation.inodes import Move, SimulatedDirectory, SimulatedFile

FIRST_DESCRIPTOR = 1_000_000  # no real descriptor: a call that slips past the adapter fails instead of touching one
UNLIMITED_BYTES = 1 << 40  # what a disk without a limit calls its size


class ProcessDiedError(BaseException):
    """The process was killed before it made this call: whatever called it runs no further, and nobody may take this for an answer."""


class SimulatedStat(NamedTuple):
    """What callers look at of an os.stat_result."""

    st_dev: int
    st_ino: int
    st_size: int
    st_nlink: int
    st_mtime: float
    st_mtime_ns: int


class SimulatedFileSystemStat(NamedTuple):
    """What callers look at of an os.statvfs_result, in blocks of one byte."""

    f_frsize: int
    f_blocks: int
    f_bavail: int


class SimulatedDisk:
    """One node's disk; it outlives the node's processes. `now_s` is the wall clock for modification times."""

    def __init__(self, draw: random.Random, now_s: Callable[[], float], note: Callable[[str, str], None]) -> None:
        self._draw = draw
        self.now_s = now_s
        self.note = note
        self.root = SimulatedDirectory()
        self.capacity_bytes: int | None = None
        self.write_error_share = 0.0  # of the writes that fail with EIO
        self.sync_error_share = 0.0
        self.cold_share = 0.0  # of the reads that may not wait and would have to
        self.failed_dir: str | None = None  # nothing below it can be read or written
        self.syncs_count = 0
        self.moves: list[Move] = []  # since the last power cut

    def boot(self, on_death: Callable[[], None] = lambda: None) -> DiskView:
        """The calls of one process that uses this disk. `on_death` is called when `DiskView.calls_left` has killed it."""
        return DiskView(self, on_death)

    def cut_power(self) -> None:
        """Everything that is not durable may be lost. No process may use the disk meanwhile."""
        reachable = [self.root]
        for directory in reachable:  # what a directory holds afterwards is known only once it lost power itself
            directory.lose_power(self._draw)
            reachable += [entry for entry in directory.entries.values() if isinstance(entry, SimulatedDirectory)]
        self._settle_moves()
        for file in self._files():
            file.lose_power(self._draw)
            file.lock_owner = None
            file.links = 1

    @property
    def used_bytes(self) -> int:
        return sum(len(file.content) for file in self._files())

    # -- for DiskView ----------------------------------------------------------------------------------------------

    def find(self, path: str) -> SimulatedFile | SimulatedDirectory | None:
        found: SimulatedFile | SimulatedDirectory = self.root
        for part in _parts(path):
            if not isinstance(found, SimulatedDirectory):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            inside = found.entries.get(part)
            if inside is None:
                return None
            found = inside
        return found

    def parent_of(self, path: str) -> tuple[SimulatedDirectory, str]:
        *above, name = _parts(path)
        parent = self.find("/".join(above))
        if not isinstance(parent, SimulatedDirectory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return parent, name

    def check_room(self, growth: int) -> int:
        """How many of `growth` bytes fit; OSError when none does."""
        if self.capacity_bytes is None or growth <= 0:
            return growth
        room = self.capacity_bytes - self.used_bytes
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return min(room, growth)

    def has_failed(self, path: str) -> bool:
        return self.failed_dir is not None and f"{path}/".startswith(f"{self.failed_dir}/")

    def maybe_fail(self, share: float, what: str) -> None:
        if share and self._draw.random() < share:
            self.note("disk error", what)
            raise OSError(errno.EIO, "Input/output error")

    def is_cold(self) -> bool:
        return bool(self.cold_share) and self._draw.random() < self.cold_share

    def sync_all(self) -> None:
        for directory in self._directories():
            directory.sync()
        for file in self._files():
            file.sync()

    def _settle_moves(self) -> None:
        for move in self.moves:
            has_source = move.source.entries.get(move.source_name) is move.moved
            has_target = move.target in self._directories() and move.target.entries.get(move.target_name) is move.moved
            is_deleted = isinstance(move.moved, SimulatedFile) and move.moved.links == 0
            if has_source and has_target:
                del move.source.entries[move.source_name]
            elif not has_source and not has_target and not is_deleted:
                move.source.entries.setdefault(move.source_name, move.moved)
            move.source.sync()
        self.moves.clear()

    def _directories(self) -> list[SimulatedDirectory]:
        found = [self.root]
        for directory in found:
            found += [entry for entry in directory.entries.values() if isinstance(entry, SimulatedDirectory)]
        return found

    def _files(self) -> list[SimulatedFile]:
        files = (entry for directory in self._directories() for entry in directory.entries.values() if isinstance(entry, SimulatedFile))
        return list(dict.fromkeys(files))


class _Open:
    """An open file description."""

    def __init__(self, target: SimulatedFile | SimulatedDirectory, flags: int, path: str) -> None:
        self.target = target
        self.path = path
        self.flags = flags
        self.position = 0


class DiskView:
    """The disk as one process sees it: a storage.disk.Disk. Once the process died every call fails."""

    def __init__(self, disk: SimulatedDisk, on_death: Callable[[], None]) -> None:
        self._disk = disk
        self._open: dict[int, _Open] = {}
        self._next = FIRST_DESCRIPTOR
        self._is_dead = False
        self._on_death = on_death
        self.calls_left: int | None = None
        """How many calls the process still makes before it is killed inside one; None for a process that is not to be killed so."""
        self.awaited_suffix = ""
        """The countdown begins with the first call for a file whose name ends so."""

    def die(self) -> None:
        """The process is gone: its descriptors and locks with it."""
        self._is_dead = True
        self._open.clear()
        for file in self._disk._files():
            if file.lock_owner is self:
                file.lock_owner = None

    @property
    def open_count(self) -> int:
        return len(self._open)

    # -- descriptors -----------------------------------------------------------------------------------------------

    def open(self, path: PathLike, flags: int, mode: int = 0o777) -> int:
        self._check(path)
        name = os.fspath(path)
        found = self._disk.find(name)
        if found is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
            self._disk.check_room(1)
            parent, entry = self._disk.parent_of(name)
            found = parent.entries[entry] = SimulatedFile(self._disk.now_s())
            parent.changed()
        elif flags & os.O_EXCL and flags & os.O_CREAT:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        if isinstance(found, SimulatedDirectory) and flags & (os.O_WRONLY | os.O_RDWR):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", name)
        if flags & os.O_TRUNC and isinstance(found, SimulatedFile):
            found.truncate(0)
        return self._new_descriptor(_Open(found, flags, name))

    def close(self, fd: int) -> None:
        if self._is_dead:
            return
        if fd not in self._open:
            raise OSError(errno.EBADF, "Bad file descriptor")
        self._check()
        del self._open[fd]

    def dup(self, fd: int) -> int:
        return self._new_descriptor(self._at(fd))

    def fstat(self, fd: int) -> SimulatedStat:
        return _stat(self._at(fd).target)

    # -- reading and writing ---------------------------------------------------------------------------------------

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._file(fd).content[position : position + size])

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int = 0) -> int:
        content = self._file(fd).content
        if flags and self._disk.is_cold():
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        total = 0
        for buffer in buffers:
            data = content[position + total : position + total + len(buffer)]
            buffer[: len(data)] = data
            total += len(data)
        return total

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return self._write(self._file(fd), data, position)

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        opened = self._at(fd)
        file = self._file(fd)
        position = len(file.content) if opened.flags & os.O_APPEND else opened.position
        count = self._write(file, data, position)
        opened.position = position + count
        return count

    def ftruncate(self, fd: int, size: int) -> None:
        self._file(fd).truncate(size)

    def truncate(self, path: PathLike, size: int) -> None:
        self._get_file(path).truncate(size)

    def utime(self, path: PathLike, times: tuple[float, float]) -> None:
        self._get_file(path).modified_s = times[1]

    def posix_fadvise(self, fd: int, position: int, size: int, advice: int) -> None:
        self._at(fd)

    # -- durability ------------------------------------------------------------------------------------------------

    def fdatasync(self, fd: int) -> None:
        target = self._at(fd).target
        self._disk.maybe_fail(self._disk.sync_error_share, "sync")
        self._disk.syncs_count += 1
        target.sync()

    def fsync(self, fd: int) -> None:
        self.fdatasync(fd)

    def can_syncfs(self) -> bool:
        return True

    def syncfs(self, fd: int) -> None:
        self._at(fd)
        self._disk.maybe_fail(self._disk.sync_error_share, "sync")
        self._disk.syncs_count += 1
        self._disk.sync_all()

    # -- names -----------------------------------------------------------------------------------------------------

    def stat(self, path: PathLike) -> SimulatedStat:
        self._check(path)
        found = self._disk.find(os.fspath(path))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return _stat(found)

    def statvfs(self, path: PathLike) -> SimulatedFileSystemStat:
        self.stat(path)
        total_bytes = self._disk.capacity_bytes or UNLIMITED_BYTES
        return SimulatedFileSystemStat(1, total_bytes, max(total_bytes - self._disk.used_bytes, 0))

    def exists(self, path: PathLike) -> bool:
        self._check()
        return not self._disk.has_failed(os.fspath(path)) and self._disk.find(os.fspath(path)) is not None

    def replace(self, source: PathLike, target: PathLike) -> None:
        self._check(source, target)
        old_parent, old_name = self._disk.parent_of(os.fspath(source))
        new_parent, new_name = self._disk.parent_of(os.fspath(target))
        if old_name not in old_parent.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(source))
        replaced = new_parent.entries.get(new_name)
        moved = old_parent.entries.pop(old_name)
        if isinstance(replaced, SimulatedFile) and replaced is not moved:
            replaced.links = 0
        new_parent.entries[new_name] = moved
        new_parent.changed()
        if new_parent is not old_parent:
            old_parent.changed()
            self._disk.moves.append(Move(moved, old_parent, old_name, new_parent, new_name))

    def unlink(self, path: PathLike) -> None:
        self._check(path)
        parent, name = self._disk.parent_of(os.fspath(path))
        found = parent.entries.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        if isinstance(found, SimulatedDirectory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", os.fspath(path))
        del parent.entries[name]
        found.links = 0
        parent.changed()

    def mkdir(self, path: PathLike, mode: int = 0o777) -> None:
        self._check(path)
        if self._disk.find(os.fspath(path)) is not None:
            raise FileExistsError(errno.EEXIST, "File exists", os.fspath(path))
        parent, name = self._disk.parent_of(os.fspath(path))
        parent.entries[name] = SimulatedDirectory()
        parent.changed()

    def rmdir(self, path: PathLike) -> None:
        self._check(path)
        parent, name = self._disk.parent_of(os.fspath(path))
        found = parent.entries.get(name)
        if not isinstance(found, SimulatedDirectory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", os.fspath(path))
        if found.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", os.fspath(path))
        del parent.entries[name]
        parent.changed()

    def scan(self, path: PathLike) -> list[DirectoryEntry]:
        """The directory's entries, by name."""
        self._check(path)
        found = self._disk.find(os.fspath(path))
        if not isinstance(found, SimulatedDirectory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return [DirectoryEntry(name, isinstance(entry, SimulatedDirectory)) for name, entry in sorted(found.entries.items())]

    def lock(self, fd: int) -> bool:
        """Whether the exclusive lock on the file is this process's now."""
        file = self._file(fd)
        if file.lock_owner is not None and file.lock_owner is not self:
            return False
        file.lock_owner = self
        return True

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self, *paths: PathLike) -> None:
        if self.calls_left is not None and not self._is_dead and self._counts(paths):
            self.calls_left -= 1
            if self.calls_left < 0:
                self._on_death()
        if self._is_dead:
            raise ProcessDiedError
        for path in paths:
            if self._disk.has_failed(os.fspath(path)):
                raise OSError(errno.EIO, "Input/output error", path)

    def _counts(self, paths: tuple[PathLike, ...]) -> bool:
        if self.awaited_suffix and any(os.fspath(path).endswith(self.awaited_suffix) for path in paths):
            self.awaited_suffix = ""
        return not self.awaited_suffix

    def _at(self, fd: int) -> _Open:
        self._check()
        found = self._open.get(fd)
        if found is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if self._disk.has_failed(found.path):
            raise OSError(errno.EIO, "Input/output error", found.path)
        return found

    def _file(self, fd: int) -> SimulatedFile:
        target = self._at(fd).target
        if isinstance(target, SimulatedDirectory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        return target

    def _get_file(self, path: PathLike) -> SimulatedFile:
        self._check(path)
        found = self._disk.find(os.fspath(path))
        if not isinstance(found, SimulatedFile):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return found

    def _write(self, file: SimulatedFile, data: bytes | bytearray | memoryview, position: int) -> int:
        self._disk.maybe_fail(self._disk.write_error_share, "write")
        growth = position + len(data) - len(file.content)
        room = self._disk.check_room(growth)
        count = len(data) if growth <= 0 else len(data) - (growth - room)
        file.write(bytes(data[:count]), position, self._disk.now_s())
        return count

    def _new_descriptor(self, opened: _Open) -> int:
        self._next += 1
        self._open[self._next] = opened
        return self._next


@functools.lru_cache(maxsize=10_000)  # a run asks for a few paths again and again
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _stat(target: SimulatedFile | SimulatedDirectory) -> SimulatedStat:
    if isinstance(target, SimulatedDirectory):
        return SimulatedStat(0, id(target), 0, 2, 0.0, 0)  # the id is an inode number: only compared, while both are open
    return SimulatedStat(0, id(target), len(target.content), target.links, target.modified_s, int(target.modified_s * 1e9))
