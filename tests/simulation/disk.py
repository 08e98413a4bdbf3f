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

PAGE_BYTES = 512  # smaller than a real page: more torn shapes for the same bytes
FIRST_DESCRIPTOR = 1_000_000  # no real descriptor: a call that slips past the adapter fails instead of touching one
UNLIMITED_BYTES = 1 << 40  # what a disk without a limit calls its size
KEEP_SHARES = (0.0, 0.5, 0.9, 1.0)  # of a file's dirty pages that a power cut keeps


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


class _File:
    """An inode. `content` is what is read; `durable` what a power cut leaves at least."""

    def __init__(self, now_s: float) -> None:
        self.content = bytearray()
        self.durable = b""
        self.dirty_pages: dict[int, None] = {}
        self.least_size = 0  # the smallest size since the last sync: what was beyond may or may not be gone
        self.links = 1
        self.modified_s = now_s
        self.lock_owner: DiskView | None = None

    def write(self, data: bytes, position: int, now_s: float) -> None:
        end = position + len(data)
        if position > len(self.content):
            self.content += bytes(position - len(self.content))
        self.content[position:end] = data
        for page in range(position // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
            self.dirty_pages[page] = None
        self.modified_s = now_s

    def truncate(self, size: int) -> None:
        if size < len(self.content):
            del self.content[size:]
            self.least_size = min(self.least_size, size)
            for page in [page for page in self.dirty_pages if page * PAGE_BYTES >= size]:
                del self.dirty_pages[page]
        elif size > len(self.content):
            self.write(bytes(size - len(self.content)), len(self.content), self.modified_s)

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.dirty_pages.clear()
        self.least_size = len(self.durable)

    def lose_power(self, draw: random.Random) -> None:
        left = bytearray(self.durable)
        if self.least_size < len(left) and draw.random() < 0.5:
            del left[self.least_size :]
        share = draw.choice(KEEP_SHARES)
        for page in sorted(self.dirty_pages):
            if draw.random() < share:
                start = page * PAGE_BYTES
                data = self.content[start : start + PAGE_BYTES]
                if start > len(left):
                    left += bytes(start - len(left))
                left[start : start + len(data)] = data
        self.content = left
        self.sync()


class _Directory:
    """Names and what they stand for. `pending` are changes that a power cut may undo, oldest first:."""

    def __init__(self) -> None:
        self.entries: dict[str, _File | _Directory] = {}
        self.durable: dict[str, _File | _Directory] = {}
        self.pending: list[dict[str, _File | _Directory]] = []  # the entries after each change

    def changed(self) -> None:
        self.pending.append(dict(self.entries))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def lose_power(self, draw: random.Random) -> None:
        states = [self.durable, *self.pending]
        self.entries = dict(draw.choice(states))
        self.sync()


class _Move(NamedTuple):
    """A rename from one directory into another: a power cut leaves one of the two names, as journals do."""

    moved: _File | _Directory
    source: _Directory
    source_name: str
    target: _Directory
    target_name: str


class SimulatedDisk:
    """One node's disk; it outlives the node's processes. `now_s` is the wall clock for modification times."""

    def __init__(self, draw: random.Random, now_s: Callable[[], float], note: Callable[[str, str], None]) -> None:
        self._draw = draw
        self.now_s = now_s
        self.note = note
        self.root = _Directory()
        self.capacity_bytes: int | None = None
        self.write_error_share = 0.0  # of the writes that fail with EIO
        self.sync_error_share = 0.0
        self.cold_share = 0.0  # of the reads that may not wait and would have to
        self.failed_dir: str | None = None  # nothing below it can be read or written
        self.syncs_count = 0
        self.moves: list[_Move] = []  # since the last power cut

    def boot(self, on_death: Callable[[], None] = lambda: None) -> DiskView:
        """The calls of one process that uses this disk. `on_death` is called when `DiskView.calls_left` has killed it."""
        return DiskView(self, on_death)

    def cut_power(self) -> None:
        """Everything that is not durable may be lost. No process may use the disk meanwhile."""
        reachable = [self.root]
        for directory in reachable:  # what a directory holds afterwards is known only once it lost power itself
            directory.lose_power(self._draw)
            reachable += [entry for entry in directory.entries.values() if isinstance(entry, _Directory)]
        self._settle_moves()
        for file in self._files():
            file.lose_power(self._draw)
            file.lock_owner = None
            file.links = 1

    @property
    def used_bytes(self) -> int:
        return sum(len(file.content) for file in self._files())

    # -- for DiskView ----------------------------------------------------------------------------------------------

    def find(self, path: str) -> _File | _Directory | None:
        found: _File | _Directory = self.root
        for part in _parts(path):
            if not isinstance(found, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            inside = found.entries.get(part)
            if inside is None:
                return None
            found = inside
        return found

    def parent_of(self, path: str) -> tuple[_Directory, str]:
        *above, name = _parts(path)
        parent = self.find("/".join(above))
        if not isinstance(parent, _Directory):
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
            is_deleted = isinstance(move.moved, _File) and move.moved.links == 0
            if has_source and has_target:
                del move.source.entries[move.source_name]
            elif not has_source and not has_target and not is_deleted:
                move.source.entries.setdefault(move.source_name, move.moved)
            move.source.sync()
        self.moves.clear()

    def _directories(self) -> list[_Directory]:
        found = [self.root]
        for directory in found:
            found += [entry for entry in directory.entries.values() if isinstance(entry, _Directory)]
        return found

    def _files(self) -> list[_File]:
        files = (entry for directory in self._directories() for entry in directory.entries.values() if isinstance(entry, _File))
        return list(dict.fromkeys(files))


class _Open:
    """An open file description."""

    def __init__(self, target: _File | _Directory, flags: int, path: str) -> None:
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
            found = parent.entries[entry] = _File(self._disk.now_s())
            parent.changed()
        elif flags & os.O_EXCL and flags & os.O_CREAT:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        if isinstance(found, _Directory) and flags & (os.O_WRONLY | os.O_RDWR):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", name)
        if flags & os.O_TRUNC and isinstance(found, _File):
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
        if isinstance(replaced, _File) and replaced is not moved:
            replaced.links = 0
        new_parent.entries[new_name] = moved
        new_parent.changed()
        if new_parent is not old_parent:
            old_parent.changed()
            self._disk.moves.append(_Move(moved, old_parent, old_name, new_parent, new_name))

    def unlink(self, path: PathLike) -> None:
        self._check(path)
        parent, name = self._disk.parent_of(os.fspath(path))
        found = parent.entries.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        if isinstance(found, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", os.fspath(path))
        del parent.entries[name]
        found.links = 0
        parent.changed()

    def mkdir(self, path: PathLike, mode: int = 0o777) -> None:
        self._check(path)
        if self._disk.find(os.fspath(path)) is not None:
            raise FileExistsError(errno.EEXIST, "File exists", os.fspath(path))
        parent, name = self._disk.parent_of(os.fspath(path))
        parent.entries[name] = _Directory()
        parent.changed()

    def rmdir(self, path: PathLike) -> None:
        self._check(path)
        parent, name = self._disk.parent_of(os.fspath(path))
        found = parent.entries.get(name)
        if not isinstance(found, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", os.fspath(path))
        if found.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", os.fspath(path))
        del parent.entries[name]
        parent.changed()

    def scan(self, path: PathLike) -> list[DirectoryEntry]:
        """The directory's entries, by name."""
        self._check(path)
        found = self._disk.find(os.fspath(path))
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return [DirectoryEntry(name, isinstance(entry, _Directory)) for name, entry in sorted(found.entries.items())]

    def lock(self, fd: int) -> bool:
        """Whether the exclusive lock on the file is this process's now."""
        file = self._file(fd)
        if file.lock_owner is not None and file.lock_owner is not self:
            return False
        file.lock_owner = self
        return True

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self, *paths: PathLike) -> None:
        if self.calls_left is not None and not self._is_dead:
            self.calls_left -= 1
            if self.calls_left < 0:
                self._on_death()
        if self._is_dead:
            raise ProcessDiedError
        for path in paths:
            if self._disk.has_failed(os.fspath(path)):
                raise OSError(errno.EIO, "Input/output error", path)

    def _at(self, fd: int) -> _Open:
        self._check()
        found = self._open.get(fd)
        if found is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if self._disk.has_failed(found.path):
            raise OSError(errno.EIO, "Input/output error", found.path)
        return found

    def _file(self, fd: int) -> _File:
        target = self._at(fd).target
        if isinstance(target, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        return target

    def _get_file(self, path: PathLike) -> _File:
        self._check(path)
        found = self._disk.find(os.fspath(path))
        if not isinstance(found, _File):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return found

    def _write(self, file: _File, data: bytes | bytearray | memoryview, position: int) -> int:
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


def _stat(target: _File | _Directory) -> SimulatedStat:
    if isinstance(target, _Directory):
        return SimulatedStat(0, id(target), 0, 2, 0.0, 0)  # the id is an inode number: only compared, while both are open
    return SimulatedStat(0, id(target), len(target.content), target.links, target.modified_s, int(target.modified_s * 1e9))
