"""`__cluster_metadata-0` on disk: the quorum's log over a storage Log, with its snapshots. Satisfies RaftLog.

Offsets and epochs are assigned by the leader of the quorum, so batches are appended as a follower appends them: nothing validates or
changes them again. Only the FlushWork that `log.take_flush` makes and the deletion of files leave the loop.

Source: kafka.raft.KafkaMetadataLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from broker.quorum.raft_log import METADATA_TOPIC, METADATA_TOPIC_ID, PARTITION, ControlRecord, OffsetAndEpoch
from broker.quorum.snapshot_files import SnapshotFiles
from config.topic import LONG_MAX, LogConfig
from protocol import codec
from protocol.errors import DecodeError, KafkaError
from protocol.messages.stored.control_records import KRaftVersionRecord, decode_control_key
from protocol.messages.stored.voters_record import VotersRecord
from protocol.records import (
    ControlRecordType,
    SimpleRecord,
    build_batch,
    crc_is_valid,
    encode_control_record_key,
    iterate_headers,
    iterate_records,
)
from protocol.uuids import uuid_to_text
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.files import PARTITION_METADATA, delete_if_exists, make_directory, partition_directory_name, read_file, replace_file
from storage.log import Log
from storage.log_opener import open_log

logger = logging.getLogger("barnabas.quorum")

MESSAGE_BYTES_MAX = 2**31 - 1
_KEPT: dict[ControlRecordType, type[Any]] = {
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}


class EncodeBatch(Protocol):
    """Encodes one batch of metadata records, with its offsets and epoch."""

    def __call__(self, records: Sequence[Any], *, base_offset: int, epoch: int, now_ms: int) -> bytearray: ...


ToWallClock = Callable[[int], int]
"""A time of the monotonic clock, which Raft's timeouts need, as one of the wall clock, both in ms."""


def same_clock(time_ms: int) -> int:
    return time_ms


class QuorumLog:
    """The metadata log of this node. Create one by `QuorumLog.open`."""

    def __init__(self, log: Log, encode_batch: EncodeBatch, disk: Disk, to_wall_clock_ms: ToWallClock) -> None:
        self.log = log
        self.disk = disk
        self.snapshots = SnapshotFiles(log.directory, disk)
        self.appended_bytes = 0
        """Of all batches of records since this start."""
        self.last_timestamp = 0
        """Of the newest batch since this start."""
        self._encode_batch = encode_batch
        self._to_wall_clock_ms = to_wall_clock_ms

    @classmethod
    def open(
        cls,
        root: Path,
        config: LogConfig,
        encode_batch: EncodeBatch,
        *,
        now_ms: int,
        disk: Disk = SYSTEM_DISK,
        to_wall_clock_ms: ToWallClock = same_clock,
    ) -> QuorumLog:
        """The log in `root`, the metadata log directory; made if it is not there. `now_ms` is by the wall clock, as times in the files are;
        Raft's own times become that by `to_wall_clock_ms`. Blocks. Raises StorageError."""
        directory = root / partition_directory_name(METADATA_TOPIC, PARTITION)
        make_directory(directory, disk)
        if not disk.exists(directory / PARTITION_METADATA):
            topic_id = f"version: 0\ntopic_id: {uuid_to_text(METADATA_TOPIC_ID)}"
            replace_file(directory / PARTITION_METADATA, topic_id.encode(), disk=disk)
        log = open_log(directory, METADATA_TOPIC, PARTITION, METADATA_TOPIC_ID, config, now_ms=now_ms, disk=disk)
        opened = cls(log, encode_batch, disk, to_wall_clock_ms)
        opened._check_start(now_ms)
        return opened

    # -- RaftLog ---------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def durable_end_offset(self) -> int:
        return self.log.durable_end_offset

    @property
    def last_epoch(self) -> int:
        latest = self.log.leader_epochs.latest_epoch
        if latest is not None:
            return latest
        snapshot = self.latest_snapshot
        return 0 if snapshot is None else snapshot.epoch

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.latest

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.earliest

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = self.log.end_offset_for_epoch(epoch)
        if not end.is_defined:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        earliest = self.earliest_snapshot
        if earliest is not None and end.end_offset == earliest.offset and end.epoch == epoch:
            return earliest  # the epoch is older than the whole log: the snapshot has the last one before it
        return OffsetAndEpoch(end.end_offset, end.epoch)

    def begin_epoch(self, epoch: int) -> None:
        self.log.assign_leader_epoch(epoch)

    def append_records(self, records: Sequence[Any], *, epoch: int, now_ms: int) -> int:
        at_ms = self._to_wall_clock_ms(now_ms)
        batch = self._encode_batch(records, base_offset=self.end_offset, epoch=epoch, now_ms=at_ms)
        offset = self._append(batch, at_ms)
        self.appended_bytes += len(batch)
        return offset

    def append_control_records(self, records: Sequence[tuple[ControlRecordType, Any]], *, epoch: int, now_ms: int) -> int:
        at_ms = self._to_wall_clock_ms(now_ms)
        return self._append(control_batch(records, base_offset=self.end_offset, epoch=epoch, now_ms=at_ms), at_ms)

    def append_fetched(self, records: Any, *, leader_epoch: int, now_ms: int) -> list[ControlRecord]:
        view = memoryview(records)
        end, next_offset = 0, self.end_offset
        found: list[ControlRecord] = []
        try:
            for position, header in iterate_headers(view):
                if header.partition_leader_epoch > leader_epoch or header.base_offset != next_offset:
                    break
                if header.is_control:
                    found += _control_records(view, position)
                self._note_timestamp(header.max_timestamp)
                end, next_offset = position + header.size_bytes, header.next_offset
            self.log.append_as_follower(view[:end], now_ms=self._to_wall_clock_ms(now_ms))
        except (DecodeError, KafkaError) as error:
            # Kafka's follower continues to fetch too: a batch damaged on the way is sent again.
            logger.warning("batches from the leader of the metadata quorum are left out offset=%d error=%s", self.end_offset, error)
            return []
        self.appended_bytes += end
        return found

    def _note_timestamp(self, timestamp: int) -> None:
        self.last_timestamp = max(self.last_timestamp, timestamp)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        self.log.truncate_to(offset, now_ms=self._to_wall_clock_ms(now_ms))

    def read(self, start_offset: int, *, max_bytes: int) -> Any:
        return self.log.read(start_offset, max_bytes=max_bytes, end_offset=self.end_offset, minimum_one_batch=True)

    def set_high_watermark(self, offset: int) -> None:
        self.log.set_high_watermark(offset)

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        return self.snapshots.read(snapshot, position, max_bytes)

    def begin_snapshot(self, snapshot: OffsetAndEpoch) -> int | None:
        if snapshot in self.snapshots:
            return None
        self.snapshots.begin(snapshot)
        return 0

    def append_snapshot(self, snapshot: OffsetAndEpoch, position: int, content: Any) -> None:
        self.snapshots.append(snapshot, position, content)

    def finish_snapshot(self, snapshot: OffsetAndEpoch, *, now_ms: int) -> list[ControlRecord]:
        path = self.snapshots.finish(snapshot)
        self.log.truncate_fully_and_start_at(snapshot.offset, now_ms=self._to_wall_clock_ms(now_ms))
        for older in self.snapshots.all():
            if older < snapshot:
                delete_if_exists(self.snapshots.forget(older), self.disk)
        return _snapshot_control_records(path, snapshot, self.disk)

    # -- the start -------------------------------------------------------------------------------------------------

    def control_records(self) -> Iterator[ControlRecord]:
        """Yields voters and kraft versions of the newest snapshot and of the log after it, in order. Blocks for the disk."""
        snapshot = self.latest_snapshot
        offset = self.start_offset
        if snapshot is not None and snapshot.offset >= offset:
            yield from _snapshot_control_records(self.snapshots.path_of(snapshot), snapshot, self.disk)
            offset = snapshot.offset
        for segment in self.log.segments:
            for position, header in segment.iterate_batches():
                if header.is_control and header.base_offset >= offset:
                    yield from _control_records(memoryview(segment.read_batch(position, header.size_bytes)), 0)

    def _check_start(self, now_ms: int) -> None:
        """The log has to begin at 0, or where a snapshot ends. A snapshot of a later epoch, or one beyond the log's end in the same
        epoch, replaces the log: a crash came before or during the truncation, which leaves the older epochs (KafkaRaftClient's
        maybeTruncateFullyToLatestSnapshot)."""
        self._pass_over_unfinished()
        latest = self.latest_snapshot
        if latest is not None and (latest.epoch, latest.offset) > (self.last_epoch, self.end_offset):
            self.log.truncate_fully_and_start_at(latest.offset, now_ms=now_ms)
        elif self.start_offset > 0 and (latest is None or latest.offset < self.start_offset):
            raise StorageError(f"{self.log.directory} starts at offset {self.start_offset}, and the snapshot that leads there is missing")

    def _pass_over_unfinished(self) -> None:
        """Skip snapshots without a footer. This program leaves none; another program or the disk may."""
        while (latest := self.latest_snapshot) is not None:
            path = self.snapshots.path_of(latest)
            try:
                check_is_whole(path, self.disk)
                return
            except StorageError as error:
                logger.warning("passing over a snapshot: %s", error)
                self.snapshots.forget(latest)

    # -- retention -------------------------------------------------------------------------------------------------

    def delete_before(self, snapshot: OffsetAndEpoch, *, now_ms: int) -> None:
        """Remove whole committed segments before `snapshot`, which has their state. Raises StorageError."""
        self.log.set_log_start_offset(min(snapshot.offset, self.log.high_watermark))
        self.log.delete_old_segments(now_ms)

    def take_deletions(self, others: Sequence[Path]) -> Callable[[], None]:
        """Returns a function that deletes the files of removed segments, and `others`. It has to run off the loop. Raises StorageError."""
        deletions = self.log.deletions.take_due(LONG_MAX)
        paths = [*others, *(path for deletion in deletions for path in deletion.paths)]

        def run() -> None:
            for path in paths:
                delete_if_exists(path, self.disk)

        return run

    def close(self) -> None:
        self.log.close()

    def _append(self, batch: bytearray, now_ms: int) -> int:
        self.log.append_as_follower(memoryview(batch), now_ms=now_ms)
        self._note_timestamp(now_ms)
        return self.end_offset - 1


def control_batch(records: Sequence[tuple[ControlRecordType, Any]], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """Returns the control records as one batch."""
    encoded = [SimpleRecord(encode_control_record_key(kind), codec.encode(value, value.version), (), now_ms) for kind, value in records]
    return build_batch(encoded, base_offset=base_offset, partition_leader_epoch=epoch, is_control=True)


def _control_records(view: memoryview, position: int) -> list[ControlRecord]:
    found = []
    for record in iterate_records(view, position):
        kind = decode_control_key(record.key or b"")
        value_class = _KEPT.get(kind)
        if value_class is not None:
            found.append(ControlRecord(record.offset, kind, codec.decode(value_class, 0, record.value or b"")[0]))
    return found


def check_is_whole(path: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Raises StorageError for a snapshot that does not end with its footer."""
    last = None
    content = memoryview(read_file(path, disk) or b"")
    try:
        for position, header in iterate_headers(content):
            if not crc_is_valid(content, position, header.size_bytes):
                raise StorageError(f"{path}: the batch at offset {header.base_offset} has a wrong CRC", path=path)
            last = position if header.is_control else None
        kinds = [] if last is None else [decode_control_key(record.key or b"") for record in iterate_records(content, last)]
    except DecodeError as error:
        raise StorageError(f"{path} cannot be read: {error}", path=path) from error
    if kinds[-1:] != [ControlRecordType.SNAPSHOT_FOOTER]:
        raise StorageError(f"{path} ends without a footer", path=path)


def _snapshot_control_records(path: Path, snapshot: OffsetAndEpoch, disk: Disk) -> list[ControlRecord]:
    """Returns the snapshot's control records, with the offset before the snapshot's end: they are valid from there on."""
    content = memoryview(read_file(path, disk) or b"")
    found: list[ControlRecord] = []
    try:
        for position, header in iterate_headers(content):
            if header.is_control:
                found += _control_records(content, position)
    except DecodeError as error:
        raise StorageError(f"{path} cannot be read: {error}", path=path) from error
    newest = {record.type: record for record in found}
    return [ControlRecord(snapshot.offset - 1, kind, record.value) for kind, record in newest.items()]


def log_config(segment_bytes: int, segment_ms: int) -> LogConfig:
    """Returns a config without retention: only snapshots may shorten the metadata log."""
    return LogConfig(
        segment_bytes=segment_bytes, segment_ms=segment_ms, retention_ms=-1, retention_bytes=-1, max_message_bytes=MESSAGE_BYTES_MAX
    )
