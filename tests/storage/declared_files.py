"""A closed log's files, read with the declarations of `storage/formats.py` alone: whether they are whole and agree with each other."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import construct as c

from protocol.checksum import crc32c
from storage import formats

CRC_START = 21
SNAPSHOT_CRC_START = 6


def read_batches(log_file: Path) -> list[tuple[int, c.Container]]:
    """(position, batch) of each batch. AssertionError unless they fill the file and their checksums are right."""
    data = log_file.read_bytes()
    batches, position = [], 0
    for batch in c.GreedyRange(formats.RECORD_BATCH).parse(data):
        size = size_of(batch)
        assert crc32c(data[position + CRC_START : position + size]) == batch.header.crc, (log_file, position)
        batches.append((position, batch))
        position += size
    assert position == len(data), f"{log_file} holds something else from {position} on"
    return batches


def read_entries(index_file: Path, entry: c.Construct) -> list[c.Container]:
    data = index_file.read_bytes()
    assert len(data) % entry.sizeof() == 0, f"{index_file} ends within an entry"
    return list(c.GreedyRange(entry).parse(data))


def size_of(batch: c.Container) -> int:
    return int(batch.header.batch_length + 12)


def last_offset_of(header: c.Container) -> int:
    return int(header.base_offset + header.last_offset_delta)


def assert_files_agree(directory: Path) -> None:
    """Of a log that was closed and never compacted."""
    headers: list[c.Container] = []
    for log_file in sorted(directory.glob("*.log")):
        batches = read_batches(log_file)
        _assert_indexes_agree(log_file, [(position, batch.header) for position, batch in batches])
        for entry in read_entries(path, formats.TRANSACTION_INDEX_ENTRY) if (path := log_file.with_suffix(".txnindex")).exists() else []:
            _assert_is_abort(entry, [batch for _, batch in batches])
        headers += [batch.header for _, batch in batches]
    offsets = [header.base_offset for header in headers]
    assert offsets == sorted(set(offsets))
    assert all(last_offset_of(header) < offset for header, offset in zip(headers, offsets[1:], strict=False))
    _assert_epochs_agree(directory / "leader-epoch-checkpoint", headers)
    for snapshot_file in directory.glob("*.snapshot"):
        _assert_snapshot_agrees(snapshot_file, headers)


def _assert_indexes_agree(log_file: Path, headers: list[tuple[int, c.Container]]) -> None:
    base_offset = int(log_file.stem)
    positions = {last_offset_of(header): position for position, header in headers}
    entries = read_entries(log_file.with_suffix(".index"), formats.OFFSET_INDEX_ENTRY)
    indexed = [(base_offset + entry.relative_offset, entry.position) for entry in entries]
    assert indexed == [(offset, positions.get(offset)) for offset, _ in indexed], log_file
    assert indexed == sorted(set(indexed)), log_file

    largest: dict[int, int] = {}  # by the last offset of the first batch that has it
    for _, header in headers:
        if header.max_timestamp > max(largest.values(), default=-1):
            largest[last_offset_of(header)] = header.max_timestamp
    times = read_entries(log_file.with_suffix(".timeindex"), formats.TIME_INDEX_ENTRY)
    assert [(base_offset + entry.relative_offset, entry.timestamp) for entry in times] == [
        (base_offset + entry.relative_offset, largest.get(base_offset + entry.relative_offset)) for entry in times
    ], log_file
    assert (times[-1].timestamp if times else -1) == max(largest.values(), default=-1), f"{log_file}: closed without its largest timestamp"


def _assert_is_abort(entry: c.Container, batches: list[c.Container]) -> None:
    marker = next((batch for batch in batches if batch.header.base_offset == entry.last_offset), None)
    assert marker is not None, f"no batch is at the marker's offset {entry.last_offset}"
    assert marker.header.attributes.is_control and marker.header.producer_id == entry.producer_id
    assert str(formats.CONTROL_RECORD_KEY.parse(formats.RECORD.parse(marker.payload).key).type) == "ABORT"
    assert entry.first_offset < entry.last_offset


def _assert_epochs_agree(path: Path, headers: list[c.Container]) -> None:
    entries = formats.LEADER_EPOCH_CHECKPOINT.parse(path.read_bytes()).entries if path.exists() else []
    starts = [entry.start_offset for entry in entries]
    for header in headers:
        slot = bisect_right(starts, header.base_offset)
        assert slot and entries[slot - 1].epoch == header.partition_leader_epoch, (path, header.base_offset)


def _assert_snapshot_agrees(path: Path, headers: list[c.Container]) -> None:
    data = path.read_bytes()
    snapshot = formats.PRODUCER_SNAPSHOT.parse(data)
    assert formats.PRODUCER_SNAPSHOT.build(snapshot) == data, f"{path} holds more than its entries"
    assert crc32c(data[SNAPSHOT_CRC_START:]) == snapshot.crc, path
    found = {entry.producer_id: (entry.producer_epoch, entry.last_offset) for entry in snapshot.entries}
    expected = {
        header.producer_id: (header.producer_epoch, last_offset_of(header))
        for header in headers
        if header.producer_id >= 0 and not header.attributes.is_control and header.base_offset < int(path.stem)
    }
    assert found == expected, path
