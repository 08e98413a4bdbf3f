"""LeaderEpochFileCache: the start offset of each leader epoch of a partition.

Owned by one Log. Invariant: epochs and start offsets both rise strictly. By the cache, and its file `leader-epoch-checkpoint`, a follower
or a consumer learns where to truncate (KIP-101, KIP-279, KIP-320).

The log's flush writes the file, in a thread, before it is complete. So the file has every epoch that begins below the log's recovery point.
Recovery reads later epochs again from the batches behind that point (`confirm`). The file may still have entries that a truncation has
removed; loading removes them, by the log's end, by its start and by the batches. (Kafka waits for an fsync at each new epoch: a new leader
of a thousand partitions would wait for a thousand. It writes truncations later, as this does.)
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from storage.checkpoint import read_checkpoint, write_checkpoint
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError
from storage.files import delete_if_exists

logger = logging.getLogger("barnabas.storage")

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """An epoch and its end offset (exclusive); both -1 if it is not known."""

    epoch: int
    end_offset: int

    @property
    def is_defined(self) -> bool:
        return self.end_offset != UNDEFINED_EPOCH_OFFSET


class EpochCheckpointFile:
    """The file, which threads replace. Owner: one LeaderEpochFileCache.

    Two flushes of a log may run at once. The lock makes them write one after the other, and each content has a number, so that an older
    one does not replace a newer one."""

    __slots__ = ("_disk", "_is_closed", "_lock", "_written_number", "path")

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._lock = Lock()
        self._written_number = 0
        self._is_closed = False

    def replace(self, number: int, entries: tuple[EpochEntry, ...]) -> None:
        """Replace the file by `entries`, content number `number`, unless the file has a newer content. Without fsync. StorageError."""
        with self._lock:
            if number > self._written_number and not self._is_closed:
                write_checkpoint(self.path, [f"{epoch} {offset}" for epoch, offset in entries], fsync=False, disk=self._disk)
                self._written_number = number

    def remove(self, number: int) -> None:
        """Remove the file: a missing one is an empty table. No content below `number` is written from now on. StorageError."""
        with self._lock:
            delete_if_exists(self.path, self._disk)
            self._written_number = number

    def close(self) -> None:
        """Write nothing after this returns: the directory may be renamed, and another log may get its old name."""
        with self._lock:
            self._is_closed = True


class EpochsToWrite(NamedTuple):
    """The entries that a flush writes to the file, as they were when it was taken."""

    file: EpochCheckpointFile
    number: int
    entries: tuple[EpochEntry, ...]

    def write(self) -> None:
        """Replace the file's content, in any thread; the caller makes it durable. StorageError."""
        self.file.replace(self.number, self.entries)


class LeaderEpochFileCache:
    """The epochs of one partition in memory, backed by one checkpoint file.

    `changes_count` numbers the contents: it grows with each change since the file was read."""

    def __init__(self, path: Path, disk: Disk = SYSTEM_DISK) -> None:
        """Reads the file, which may be missing. A malformed one counts as missing, and `is_corrupt` says so."""
        self._file = EpochCheckpointFile(path, disk)
        self.is_corrupt = False
        self._epochs: list[int] = []
        self.latest_epoch: int | None = None  # the last of them; read several times for each fetch of a follower
        self._start_offsets: list[int] = []
        self.changes_count = 0
        try:
            entries = read_checkpoint(path, _parse_line, disk)
            # A power cut may leave an empty file after a replacement without fsync; an empty table has two lines.
            self.is_corrupt = not entries and disk.exists(path) and disk.stat(path).st_size == 0
        except CorruptFileError as error:
            logger.warning("%s: the epochs are read from the batches", error)
            self.is_corrupt = True
            return
        for entry in entries:
            self._insert(entry.epoch, entry.start_offset)

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._start_offsets[0]) if self._epochs else None

    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(epoch, offset) for epoch, offset in zip(self._epochs, self._start_offsets, strict=True)]

    @property
    def path(self) -> Path:
        return self._file.path

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` begins at `start_offset`; does nothing when the latest epoch is this one already. Entries that contradict
        the new one are dropped first. Returns whether anything changed."""
        if not self._insert(epoch, start_offset):
            return False
        self.changes_count += 1
        return True

    def confirm(self, epoch: int, offset: int) -> None:
        """Called by recovery for a batch of `epoch` at `offset`. An entry that contradicts it is dropped with all later ones: they are
        from before a truncation that is not in the file. Batches have to be confirmed in their order."""
        place = bisect_right(self._start_offsets, offset) - 1
        if place < 0 and self._epochs and self._epochs[0] == epoch:
            self._start_offsets[0] = offset  # deleted records are back; the load ends with the log's start
            self.changes_count += 1
            return
        if place >= 0 and self._epochs[place] == epoch:
            return
        while place >= 0 and self._epochs[place] > epoch:
            place -= 1
        self._keep(place + 1)
        self.assign(epoch, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Returns the largest epoch not above `epoch` and where it ends (LeaderEpochFileCache.endOffsetFor).

        Case A: undefined, or above every known epoch: (-1, -1). Case B: the latest: the log's end. Case C: below every known
        epoch: the same epoch and where the first known one starts. Case D: otherwise where the next higher epoch starts.
        """
        if not self._epochs or epoch == UNDEFINED_EPOCH or epoch > self._epochs[-1]:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)  # Case A
        if epoch == self._epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)  # Case B
        higher = bisect_right(self._epochs, epoch)
        found_epoch = self._epochs[higher - 1] if higher else epoch  # Case D, else Case C
        return EpochEndOffset(found_epoch, self._start_offsets[higher])

    def find_epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch that a record at `offset` was written in."""
        index = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def find_end_of_epoch_at(self, offset: int) -> int | None:
        """Returns where the epoch that holds `offset` ends, exclusive; None when no other one follows."""
        place = bisect_right(self._start_offsets, offset)
        return self._start_offsets[place] if place < len(self._start_offsets) else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drops the epochs that begin at or after `end_offset`. Returns whether there were any."""
        return end_offset >= 0 and self._keep(bisect_left(self._start_offsets, end_offset))

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drops the epochs that end at or before `start_offset`; the one that holds it then begins there. Returns whether anything
        changed."""
        dropped = bisect_right(self._start_offsets, start_offset) - 1
        if dropped < 0 or (dropped == 0 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[:dropped], self._start_offsets[:dropped]
        self._start_offsets[0] = start_offset
        self.changes_count += 1
        return True

    def clear(self) -> None:
        """Drops every entry, and deletes the file at once: an emptied log may begin at any offset, so a load could not tell that old
        entries are invalid. StorageError."""
        self._keep(0)
        self._file.remove(self.changes_count)

    def take_write(self) -> EpochsToWrite:
        """Returns the write that brings the file up to date."""
        return EpochsToWrite(self._file, self.changes_count, tuple(self.entries()))

    def note_renamed(self, path: Path) -> None:
        """Set the file's new name. No write may be running."""
        self._file.path = path

    def close(self) -> None:
        """Write nothing after this returns."""
        self._file.close()

    def _keep(self, count: int) -> bool:
        """Drops all but the first `count`. Returns whether there were more."""
        if count >= len(self._epochs):
            return False
        del self._epochs[count:], self._start_offsets[count:]
        self.latest_epoch = self._epochs[-1] if self._epochs else None
        self.changes_count += 1
        return True

    def _insert(self, epoch: int, start_offset: int) -> bool:
        assert epoch >= 0 and start_offset >= 0, f"invalid leader epoch entry ({epoch}, {start_offset})"
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._start_offsets[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch
        return True


def _parse_line(fields: list[str]) -> EpochEntry:
    epoch, start_offset = (int(field) for field in fields)
    if epoch < 0 or start_offset < 0:
        raise ValueError(f"negative entry {epoch} {start_offset}")
    return EpochEntry(epoch, start_offset)
