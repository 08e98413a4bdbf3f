"""The `.snapshot` file of a partition's producers, byte for byte Kafka's (ProducerSnapshot.json, version 1).

Layout, big endian: version int16 (1), CRC-32C uint32 of everything after it, count int32, then one 46-byte entry per producer:
producer id int64, epoch int16, last sequence int32, last offset int64 (-1 when no batch is known), offset delta int32 (last minus
first offset of the last batch), timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1: none).
Only producer_state.py uses it. A snapshot is a cache: a corrupt one is deleted and an older one, or the log, is read instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from protocol.checksum import crc32c
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError
from storage.files import read_file, replace_file

SNAPSHOT_VERSION = 1

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
ENTRY_SIZE = _ENTRY.size
assert ENTRY_SIZE == 46


class SnapshotEntry(NamedTuple):
    """One producer as the file has it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def write_snapshot(path: Path, entries: Iterable[SnapshotEntry], *, fsync: bool, disk: Disk = SYSTEM_DISK) -> None:
    """Replaces the snapshot. Without `fsync` a power cut may leave it empty, which its CRC shows."""
    encoded = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(encoded)) + b"".join(encoded)
    replace_file(path, struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body, fsync=fsync, disk=disk)


def read_snapshot(path: Path, disk: Disk = SYSTEM_DISK) -> list[SnapshotEntry]:
    """Returns the producers of the file; CorruptFileError unless every byte of it is as it was written."""
    content = read_file(path, disk)
    if content is None or len(content) < _HEADER.size:
        raise CorruptFileError(f"{path}: no whole header", path=path)
    version, crc, count = _HEADER.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptFileError(f"{path}: unknown snapshot version {version}", path=path)
    if crc != crc32c(memoryview(content)[_CRC_START:]):
        raise CorruptFileError(f"{path}: its CRC does not match", path=path)
    if len(content) != _HEADER.size + count * ENTRY_SIZE:
        raise CorruptFileError(f"{path}: {count} entries do not fill {len(content)} bytes", path=path)
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(content)[_HEADER.size :])]
