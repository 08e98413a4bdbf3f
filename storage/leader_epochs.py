"""LeaderEpochFileCache: at which offset each leader epoch of a partition began.

Owned by one Log. Invariant: epochs and start offsets both rise strictly. The cache and its file `leader-epoch-checkpoint` answer
where a follower or a consumer must truncate (KIP-101, KIP-279, KIP-320).

A new epoch is in the file when `assign` returns, so that a kill does not lose it. The log's next flush makes it safe from a power cut:
recovery reads the epochs of all batches that were not flushed. (Kafka waits for an fsync here; a broker that begins to lead a thousand
partitions would wait for a thousand.) Truncation only marks the file stale, as in Kafka: entries that are too many after a crash are
removed again by the truncation every load ends with; `flush` brings the file up to date.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

from storage.checkpoint import read_checkpoint, write_checkpoint
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError

logger = logging.getLogger("barnabas.storage")

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """The answer to "where does this epoch end": an exclusive end offset; both -1 when it is not known."""

    epoch: int
    end_offset: int

    @property
    def is_defined(self) -> bool:
        return self.end_offset != UNDEFINED_EPOCH_OFFSET


class LeaderEpochFileCache:
    """The epochs of one partition in memory, backed by one checkpoint file."""

    def __init__(self, path: Path, disk: Disk = SYSTEM_DISK) -> None:
        """Reads the file, which may be missing. A malformed one counts as missing, and `is_corrupt` says so."""
        self.path = path
        self._disk = disk
        self.is_corrupt = False
        self._epochs: list[int] = []
        self.latest_epoch: int | None = None  # the last of them; read several times for each fetch of a follower
        self._start_offsets: list[int] = []
        self._is_stale_on_disk = False
        self.is_unsynced = False  # since this start it was written without fsync
        try:
            entries = read_checkpoint(path, _parse_line, disk)
            # What a power cut leaves of a file that was replaced without fsync; an empty table has two lines.
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

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` begins at `start_offset`; does nothing when the latest epoch is this one already. Entries that contradict
        the new one are dropped first. Returns whether the file was written, without fsync."""
        if not self._insert(epoch, start_offset):
            return False
        self._write(fsync=False)
        return True

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

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that begin at or after `end_offset`."""
        keep = bisect_left(self._start_offsets, end_offset)
        if end_offset >= 0 and keep < len(self._epochs):
            del self._epochs[keep:], self._start_offsets[keep:]
            self.latest_epoch = self._epochs[-1] if self._epochs else None
            self._is_stale_on_disk = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that end at or before `start_offset`; the one that holds it then begins there."""
        dropped = bisect_right(self._start_offsets, start_offset) - 1
        if dropped < 0 or (dropped == 0 and self._start_offsets[0] == start_offset):
            return
        del self._epochs[:dropped], self._start_offsets[:dropped]
        self._start_offsets[0] = start_offset
        self._is_stale_on_disk = True

    def clear(self) -> None:
        """Drops every entry, in memory and on disk."""
        self._epochs.clear()
        self._start_offsets.clear()
        self.latest_epoch = None
        self._is_stale_on_disk = True
        self.flush()

    def flush(self) -> None:
        """Brings the file up to date after a truncation, and makes that durable."""
        if self._is_stale_on_disk:
            self._write(fsync=True)

    def _write(self, *, fsync: bool) -> None:
        self._is_stale_on_disk, self.is_unsynced = False, not fsync
        lines = [f"{epoch} {offset}" for epoch, offset in zip(self._epochs, self._start_offsets, strict=True)]
        write_checkpoint(self.path, lines, fsync=fsync, disk=self._disk)

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
