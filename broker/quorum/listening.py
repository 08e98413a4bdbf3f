"""The position of each listener of the quorum, and the reading of committed batches for them from the log and from snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from broker.quorum.log import QuorumLog
from broker.quorum.quorum import Batch, QuorumListener, SnapshotReader
from broker.quorum.raft import Raft
from broker.quorum.raft_log import OffsetAndEpoch
from broker.quorum.voters import NO_NODE
from storage.errors import StorageError
from storage.file_slice import take_bytes
from storage.files import read_file

READ_BYTES = 256 * 1024
NOTHING_HEARD = -1


class DecodeBatches(Protocol):
    """Yields whole batches; control batches have no records. StorageError, naming `what`, for a damaged one."""

    def __call__(self, buffer: memoryview, what: str) -> Iterator[Batch]: ...


class BatchReader:
    """Reads forwards for listeners: the rest of the last read is kept. `decode` knows the formats of metadata records."""

    def __init__(self, log: QuorumLog, decode: DecodeBatches) -> None:
        self._log = log
        self._decode = decode
        self._next_offset = NOTHING_HEARD
        self._batches: Iterator[Batch] = iter(())

    def read(self, offset: int, end_offset: int) -> Batch:
        """Returns the batch at `offset`, which is below `end_offset`, the committed end. StorageError when there is none."""
        batch = next(self._batches, None) if offset == self._next_offset else None
        if batch is None:
            self._batches = self._read(offset, end_offset)
            batch = next(self._batches, None)
        while batch is not None and batch.offset < offset:
            batch = next(self._batches, None)  # a snapshot may end inside a batch
        if batch is None:
            raise StorageError(f"{self._log.log.directory} has nothing at offset {offset}, below its high watermark {end_offset}")
        if batch.base_offset > offset:
            raise StorageError(f"{self._log.log.directory} has nothing between offsets {offset} and {batch.base_offset}")
        self._next_offset = batch.offset + 1
        return batch

    def _read(self, start_offset: int, end_offset: int) -> Iterator[Batch]:
        read = self._log.log.read(start_offset, max_bytes=READ_BYTES, end_offset=end_offset, minimum_one_batch=True)
        return self._decode(memoryview(take_bytes(read)), str(self._log.log.directory))

    def open_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        return _FileSnapshot(snapshot, self._log, self._decode)


class _FileSnapshot:
    """Satisfies SnapshotReader."""

    def __init__(self, snapshot: OffsetAndEpoch, log: QuorumLog, decode: DecodeBatches) -> None:
        self.snapshot = snapshot
        self._path = log.snapshots.path_of(snapshot)
        self._disk = log.disk
        self._decode = decode

    def batches(self) -> Iterator[Sequence[Any]]:
        content = read_file(self._path, self._disk)
        if content is None:
            raise StorageError(f"the snapshot {self._path} is gone", path=self._path)
        for batch in self._decode(memoryview(content), str(self._path)):
            if batch.records:
                yield batch.records


class ListenerContext:
    """The position of one listener. `next_offset` is the first offset that it has not got; NOTHING_HEARD before the first call."""

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
        """Whether the leader or the epoch differs from the last call. A leader that resigns is no leader any more, in the same epoch."""
        return raft.epoch > self._told_epoch or raft.active_leader_id != self._told_leader

    def maybe_change_leader(self, raft: Raft) -> None:
        """Report the leader. This node's own leadership is reported only when the listener has got everything committed before it."""
        if not self.wants_leader(raft):
            return
        leader_id, epoch = raft.active_leader_id, raft.epoch
        if leader_id == raft.config.me.node_id:
            leadership = raft.state.leadership
            if leadership is None or self.next_offset <= leadership.epoch_start_offset:
                if self._told_epoch == epoch:
                    return
                leader_id = NO_NODE  # the end of the older epoch is reported at once
        if (leader_id, epoch) != (self._told_leader, self._told_epoch):
            self._told_leader, self._told_epoch = leader_id, epoch
            self.listener.handle_leader_change(leader_id, epoch)
