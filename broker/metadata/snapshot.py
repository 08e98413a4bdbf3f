"""Snapshots of the metadata log: `<20-digit end offset>-<10-digit epoch>.checkpoint`, and `bootstrap.checkpoint` for a new cluster.

A snapshot holds the state below its end offset as records, between a header and a footer control record; without the footer it was never
finished and is skipped. Files are read whole: a state of 100,000 partitions is some 10 MB.

Source: org.apache.kafka.snapshot (KIP-630), org.apache.kafka.metadata.bootstrap.BootstrapDirectory.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from broker.metadata.features import (
    GROUP_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_LEVEL,
    TRANSACTION_VERSION_FEATURE,
)
from broker.metadata.record_format import read_metadata_batches
from broker.quorum.log import check_is_whole
from broker.quorum.opening import BOOTSTRAP_FILE
from broker.quorum.raft_log import OffsetAndEpoch
from protocol.errors import DecodeError
from protocol.messages.stored.metadata_records import FeatureLevelRecord
from protocol.records import HEADER_SIZE, read_header
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError, storage_errors
from storage.files import read_file

logger = logging.getLogger("barnabas.metadata")

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class Snapshot(NamedTuple):
    """The state below `end_offset`, as of leader epoch `epoch`."""

    end_offset: int
    epoch: int
    records: list[Any]


class SnapshotFile(NamedTuple):
    """A snapshot by its name, its size and the time of its header, which is when it was written (ms since the epoch)."""

    path: Path
    snapshot: OffsetAndEpoch
    size_bytes: int
    timestamp: int

    @property
    def end_offset(self) -> int:
        return self.snapshot.offset


def list_snapshots(directory: Path, disk: Disk = SYSTEM_DISK) -> list[SnapshotFile]:
    """The snapshots in `directory`, oldest first; those that have no header are left out. Blocks. Raises StorageError."""
    found: list[SnapshotFile] = []
    with storage_errors("list", directory):
        for path in sorted(directory / entry.name for entry in disk.scan(directory)):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            start = _read_start(path, disk)
            try:
                covered = OffsetAndEpoch(int(match[1]), int(match[2]))
                found.append(SnapshotFile(path, covered, disk.stat(path).st_size, read_header(start).max_timestamp))
            except DecodeError:
                logger.warning("%s is no snapshot and is left alone", path)
    return found


def read_newest_snapshot(directory: Path, disk: Disk = SYSTEM_DISK) -> Snapshot | None:
    """Returns the newest complete snapshot; None if there is none. Unfinished ones are skipped with a warning."""
    names = sorted((entry.name for entry in disk.scan(directory)), reverse=True)
    for match in filter(None, map(_NAME.fullmatch, names)):
        try:
            return Snapshot(int(match[1]), int(match[2]), _read_records(directory / match[0], disk))
        except StorageError as error:
            logger.warning("passing over a snapshot: %s", error)
    return None


def read_bootstrap_records(directory: Path, disk: Disk = SYSTEM_DISK) -> list[Any]:
    """Returns the first records of a new cluster: those that `format` wrote, else our defaults."""
    path = directory / BOOTSTRAP_FILE
    if not disk.exists(path):
        return [
            FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=METADATA_VERSION_LEVEL),
            FeatureLevelRecord(name=GROUP_VERSION_FEATURE, feature_level=1),
            FeatureLevelRecord(name=TRANSACTION_VERSION_FEATURE, feature_level=2),
        ]
    return _read_records(path, disk)


def _read_start(path: Path, disk: Disk) -> bytes:
    descriptor = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return disk.pread(descriptor, HEADER_SIZE, 0)
    finally:
        disk.close(descriptor)


def _read_records(path: Path, disk: Disk) -> list[Any]:
    check_is_whole(path, disk)
    records: list[Any] = []
    for batch in read_metadata_batches(memoryview(read_file(path, disk) or b""), str(path)):
        records.extend(batch.records)
    return records
