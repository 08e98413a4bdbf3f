"""`__cluster_metadata-0` on disk: Kafka's record batches over a storage Log, what it starts from, and the epoch beside it.

Owned by the quorum, on the loop; only the FlushWork that `log.take_flush` makes leaves it. Offsets and epochs are assigned here,
by the one leader, so batches are appended as a follower appends them: nothing validates or changes them again.

Source: kafka.raft.KafkaMetadataLog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from broker.metadata.image import CLUSTER_METADATA_TOPIC
from broker.metadata.prepared_records import PreparedRecords
from broker.metadata.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from broker.metadata.record_format import MetadataBatch, batch_of_encoded, build_metadata_batch, read_metadata_batches
from broker.metadata.snapshot import read_bootstrap_records, read_newest_snapshot
from config.server import ServerConfig
from config.topic import LONG_MAX, LogConfig
from protocol import codec
from protocol.messages.stored.control_records import LeaderChangeMessage, Voter
from protocol.records import ControlType, build_control_batch
from protocol.uuids import uuid_to_text
from storage.errors import StorageError
from storage.files import PARTITION_METADATA, delete_if_exists, partition_directory_name, replace_file, sync_directory
from storage.log import Log

TOPIC_ID = (1).to_bytes(16, "big")
"""The metadata topic's fixed id (Topic.CLUSTER_METADATA_TOPIC_ID)."""

READ_CHUNK_BYTES = 1024 * 1024
MESSAGE_BYTES_MAX = 2**31 - 1


class MetadataLog:
    """The metadata log of this node. Make one with `MetadataLog.open`."""

    def __init__(self, root: Path, log: Log, quorum_state: QuorumState | None) -> None:
        self.root = root
        self.log = log
        self.quorum_state = quorum_state
        self.is_new = True
        """Whether the log has no record of the cluster yet: a new cluster, or one that crashed in its first moment."""
        self.loaded_end_offset = 0
        self.loaded_epoch = 0
        self.loaded_timestamp = 0
        self.replayed_records_count = 0
        self.appended_bytes = 0
        """Of all batches of records since this start."""
        self.last_timestamp = 0
        """Of the newest batch since this start."""

    @classmethod
    def open(cls, root: Path, config: ServerConfig, *, now_ms: int) -> MetadataLog:
        """The log in `root`, the metadata log directory; made if it is not there. Blocks. Raises StorageError."""
        directory = root / partition_directory_name(CLUSTER_METADATA_TOPIC, 0)
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot create {directory}: {error}", path=directory) from error
        if not (directory / PARTITION_METADATA).exists():
            replace_file(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}".encode())
            sync_directory(root)
        log = Log.open(directory, CLUSTER_METADATA_TOPIC, 0, TOPIC_ID, _log_config(config), now_ms=now_ms)
        return cls(root, log, read_quorum_state(directory))

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch that the log or the quorum state knows; 0 before the first."""
        voted = 0 if self.quorum_state is None else self.quorum_state.leader_epoch
        return max(self.log.leader_epochs.latest_epoch or 0, voted, self.loaded_epoch, 0)

    def load(self, replay: Callable[[Sequence[Any]], None]) -> None:
        """Hand everything in the log to `replay`, batch by batch, the newest snapshot's records first. Raises StorageError."""
        offset = self.log.log_start_offset
        snapshot = read_newest_snapshot(self.log.directory)
        if snapshot is not None:
            self.is_new = False
            if snapshot.end_offset < offset:
                raise StorageError(f"{self.log.directory} starts at offset {offset}, and its newest snapshot ends before that")
            replay(snapshot.records)
            offset = snapshot.end_offset
            if offset > self.log.log_end_offset:
                self.log.truncate_fully_and_start_at(offset)
        elif offset > 0:
            raise StorageError(f"{self.log.directory} starts at offset {offset}, and the snapshot that leads there is missing")
        if snapshot is not None:
            self.loaded_epoch = snapshot.epoch
        while offset < self.log.log_end_offset:
            for batch in self._read(offset):
                if batch.base_offset > offset:
                    raise StorageError(f"{self.log.directory} has nothing between offsets {offset} and {batch.base_offset}")
                # The first read may begin inside a batch that the snapshot covers in part only if the snapshot is of another log.
                if not batch.is_control and batch.base_offset >= offset:
                    self.is_new = False
                    replay(batch.records)
                    self.replayed_records_count += len(batch.records)
                self.loaded_epoch = max(self.loaded_epoch, batch.epoch)
                self.loaded_timestamp = batch.timestamp
                offset = max(offset, batch.last_offset + 1)

        self.loaded_end_offset = offset

    def bootstrap_records(self) -> list[Any]:
        """What a new cluster's log begins with."""
        return read_bootstrap_records(self.root)

    def begin_epoch(self, node_id: int, epoch: int, *, now_ms: int) -> None:
        """Become leader of `epoch`, durably, then say so in the log. Blocks for one small fsync. Raises StorageError."""
        old = self.quorum_state or QuorumState()
        self.quorum_state = QuorumState(leader_id=node_id, leader_epoch=epoch, data_version=old.data_version)
        write_quorum_state(self.log.directory, self.quorum_state)
        version = old.data_version
        me = Voter(voter_id=node_id) if version == 0 else Voter(voter_id=node_id, voter_directory_id=old.voted_directory_id)
        message = LeaderChangeMessage(version=version, leader_id=node_id, voters=[me], granting_voters=[me])
        batch = build_control_batch(
            ControlType.LEADER_CHANGE,
            codec.encode(message, version),
            timestamp=now_ms,
            base_offset=self.end_offset,
            partition_leader_epoch=epoch,
        )
        self.log.append_as_follower(memoryview(batch), now_ms=now_ms)

    def append(self, records: Sequence[Any], *, epoch: int, now_ms: int) -> int:
        """Append the records as one batch; returns the offset after it. Raises StorageError, and nothing was appended."""
        if isinstance(records, PreparedRecords):
            batch = batch_of_encoded(records.payload, len(records), base_offset=self.end_offset, epoch=epoch, now_ms=now_ms)
        else:
            batch = build_metadata_batch(records, base_offset=self.end_offset, epoch=epoch, now_ms=now_ms)
        self.log.append_as_follower(memoryview(batch), now_ms=now_ms)
        self.appended_bytes += len(batch)
        self.last_timestamp = now_ms
        return self.end_offset

    def delete_before(self, offset: int, *, now_ms: int) -> None:
        """A snapshot holds the state at `offset`: remove whole segments before it. Raises StorageError.

        Their files are only renamed: `take_deletions` has them removed."""
        self.log.set_high_watermark(self.log.durable_end_offset)
        self.log.set_log_start_offset(min(offset, self.log.high_watermark))
        self.log.delete_old_segments(now_ms)

    def take_deletions(self, others: Sequence[Path]) -> Callable[[], None]:
        """What removes the files of removed segments, and `others`; to be run off the loop. Raises StorageError."""
        deletions = self.log.deletions.take_due(LONG_MAX)

        def run() -> None:
            for path in chain(others, *(deletion.paths for deletion in deletions)):
                delete_if_exists(path)

        return run

    def close(self) -> None:
        self.log.close()

    def _read(self, offset: int) -> list[MetadataBatch]:
        read = self.log.read(offset, max_bytes=READ_CHUNK_BYTES, end_offset=self.log.log_end_offset, minimum_one_batch=True)
        if isinstance(read.records, bytes):
            content = read.records
        else:
            content = read.records.read()
            read.records.release()
        batches = list(read_metadata_batches(memoryview(content), str(self.log.directory)))
        if not batches:
            raise StorageError(f"{self.log.directory} has nothing at offset {offset}, below its end offset {self.log.log_end_offset}")
        return batches


def _log_config(config: ServerConfig) -> LogConfig:
    """Never deleted from: snapshots alone may shorten the metadata log."""
    return LogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=MESSAGE_BYTES_MAX,
    )
