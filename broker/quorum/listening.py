"""What one listener of the quorum has heard, and reading committed batches for it from the log and from snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from broker.quorum.log import QuorumLog
from broker.quorum.quorum import QuorumListener, SnapshotReader
from broker.quorum.raft import Raft
from broker.quorum.raft_log import OffsetAndEpoch
from broker.quorum.voters import NO_NODE
from storage.errors import StorageError
from storage.files import read_file

READ_BYTES = 256 * 1024
NOTHING_HEARD = -1


class Batch(NamedTuple):
    """A committed batch; `offset` is that of its last record. A control batch has no records."""

    offset: int
    epoch: int
    records: Sequence[Any]


class DecodeBatches(Protocol):
    """Reads whole batches; control batches come without records. StorageError, naming `what`, for a damaged one."""

    def __call__(self, buffer: memoryview, what: str) -> Iterator[Batch]: ...


class BatchReader:
    """Reads for listeners. `decode` knows the metadata records' formats."""

    def __init__(self, log: QuorumLog, decode: DecodeBatches) -> None:
        self._log = log
        self._decode = decode

    def read(self, start_offset: int, end_offset: int) -> list[Batch]:
        """The batches from `start_offset` on, some of them, none that reaches `end_offset`. StorageError when there is none."""
        read = self._log.log.read(start_offset, max_bytes=READ_BYTES, end_offset=end_offset, minimum_one_batch=True).records
        if isinstance(read, bytes):
            content = read
        else:
            content = read.read()
            read.release()
        directory = str(self._log.log.directory)
        batches = [batch for batch in self._decode(memoryview(content), directory) if batch.offset >= start_offset]
        if not batches:
            raise StorageError(f"{directory} has nothing at offset {start_offset}, below its high watermark {end_offset}")
        return batches

    def open_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        return _FileSnapshot(snapshot, self._log, self._decode)


class _FileSnapshot:
    """Satisfies SnapshotReader."""

    def __init__(self, snapshot: OffsetAndEpoch, log: QuorumLog, decode: DecodeBatches) -> None:
        self.snapshot = snapshot
        self._path = log.snapshots.path_of(snapshot)
        self._decode = decode

    def batches(self) -> Iterator[Sequence[Any]]:
        content = memoryview(read_file(self._path) or b"")
        for batch in self._decode(content, str(self._path)):
            if batch.records:
                yield batch.records


class ListenerContext:
    """How far one listener is. `next_offset` is the first that it has not heard of, NOTHING_HEARD before its beginning."""

    def __init__(self, listener: QuorumListener) -> None:
        self.listener = listener
        self.next_offset = NOTHING_HEARD
        self._told_leader = NO_NODE
        self._told_epoch = NOTHING_HEARD

    def needs_snapshot(self, log_start_offset: int) -> bool:
        return self.next_offset < log_start_offset or self.next_offset == NOTHING_HEARD

    def load(self, reader: SnapshotReader) -> None:
        self.listener.handle_load_snapshot(reader)
        self.next_offset = reader.snapshot.offset

    def commit(self, batch: Batch) -> None:
        self.listener.handle_commit(batch.offset, batch.epoch, batch.records)
        self.next_offset = batch.offset + 1

    def wants_leader(self, raft: Raft) -> bool:
        """Whether there is a leader to tell of."""
        return raft.epoch > self._told_epoch or (raft.leader_id != NO_NODE and self._told_leader == NO_NODE)

    def maybe_change_leader(self, raft: Raft) -> None:
        """Tell who leads; of this node's own leadership only once everything committed before it was heard."""
        if not self.wants_leader(raft):
            return
        leadership = raft.state.leadership
        if raft.leader_id == raft.config.me.node_id and (leadership is None or self.next_offset <= leadership.epoch_start_offset):
            return
        self._told_leader, self._told_epoch = raft.leader_id, raft.epoch
        self.listener.handle_leader_change(raft.leader_id, raft.epoch)
