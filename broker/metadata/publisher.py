"""MetadataPublisher: applies the quorum's committed records to the MetadataCache, and has snapshots written.

It is the first listener of the quorum: the other listeners find a commit in the cache when they are called.

Source: org.apache.kafka.image.loader.MetadataLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.snapshot_generator import SnapshotGenerator
from broker.quorum.quorum import SnapshotReader
from broker.quorum.raft_log import OffsetAndEpoch

SNAPSHOT_RECORDS_MIN = 1000
"""Records replayed at a start, some 30 ms of it, from which on a snapshot is written."""


class MetadataPublisher:
    """Satisfies QuorumListener. `heard` is the offset in the log up to which the cache is built."""

    def __init__(self, cache: MetadataCache, snapshots: SnapshotGenerator) -> None:
        self._cache = cache
        self._snapshots = snapshots
        self.heard = OffsetAndEpoch(0, 0)
        self.replayed_records_count = 0
        """Of the log, since the start or since the last snapshot that was loaded."""
        self.on_access_control: Callable[[], None] = lambda: None
        """Called after each commit while the cluster has access control entries."""

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        self.heard = OffsetAndEpoch(offset + 1, epoch)
        self._cache.end_offset = offset + 1
        if records:
            self._cache.apply_committed(records)
            self.replayed_records_count += len(records)
            self._snapshots.note_commit(offset + 1, epoch)
            self._note_access_control()

    def handle_load_snapshot(self, reader: SnapshotReader) -> None:
        state = ClusterState()
        for records in reader.batches():
            state.replay_batch(records)
        state.take_delta()
        self._cache.end_offset = reader.snapshot.offset
        self._cache.replace_state(state)
        self.heard = reader.snapshot
        self.replayed_records_count = 0
        self._note_access_control()

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        """Does nothing. Clients send admin requests to any broker, so the cache does not keep the quorum's leader (KIP-590)."""

    def _note_access_control(self) -> None:
        if self._cache.state.acls:
            self.on_access_control()

    async def shorten_start(self) -> None:
        """Write a snapshot if this start had to replay a long log, so that the next start is faster. Raises StorageError."""
        if self.replayed_records_count >= SNAPSHOT_RECORDS_MIN and not self._cache.state.is_in_transaction:
            await self._snapshots.write(self.heard, self._cache.state.copy())
            self.replayed_records_count = 0
