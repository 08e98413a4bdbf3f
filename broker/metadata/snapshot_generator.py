"""SnapshotGenerator: writes snapshots of the committed state while the broker runs, and shortens the metadata log by them.

A snapshot is due once metadata.log.max.record.bytes.between.snapshots were committed since the last one, or, with the next commit, when
metadata.log.max.snapshot.interval.ms are over. The state is copied at once, right after a commit (some 10 ms with 10,000 topics). It is
encoded in slices of the loop's time, and written by a thread. The oldest snapshot, with the log before the next one, is deleted when
everything together is larger than metadata.max.retention.bytes, or when that snapshot is older than metadata.max.retention.ms. One snapshot
always stays.

Owned by the MetadataPublisher. Kafka checks retention once a minute. Here it is checked after each snapshot.
Source: org.apache.kafka.image.publisher.SnapshotGenerator, kafka.raft.KafkaMetadataLog.maybeClean (KIP-630).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock
from broker.loop.job import Slice
from broker.metadata.cluster_state import ClusterState
from broker.metadata.snapshot import SnapshotFile, list_snapshots
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from broker.quorum.log import QuorumLog
from broker.quorum.raft_log import OffsetAndEpoch
from config.server import ServerConfig
from protocol.records import ControlRecordType
from storage.errors import StorageError

logger = logging.getLogger("barnabas.metadata")


class SnapshotGenerator:
    """See the module's docstring. `state` is what the committed records have made."""

    def __init__(
        self,
        log: QuorumLog,
        state: ClusterState,
        config: ServerConfig,
        clock: Clock,
        run_blocking: RunBlocking,
        *,
        quorum_records_at: Callable[[int], Sequence[tuple[ControlRecordType, Any]]],
    ) -> None:
        self._log = log
        self._quorum_records_at = quorum_records_at
        self._state = state
        self._clock = clock
        self._run_blocking = run_blocking
        self._bytes_between = config.metadata_log_max_record_bytes_between_snapshots
        self._interval_ms = config.metadata_log_max_snapshot_interval_ms
        self._retention_bytes = config.metadata_max_retention_bytes
        self._retention_ms = config.metadata_max_retention_ms
        self._bytes_at_last = log.appended_bytes
        self._last_ms = clock.monotonic_ms()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def note_commit(self, end_offset: int, epoch: int) -> None:
        """Begin a snapshot if one is due. The state includes everything before `end_offset`, the end of a batch of leader epoch `epoch`."""
        if not self._is_due() or self._task is not None or self._is_closed or self._state.is_in_transaction:
            return
        self._bytes_at_last = self._log.appended_bytes
        self._last_ms = self._clock.monotonic_ms()
        self._task = asyncio.get_running_loop().create_task(self._generate(OffsetAndEpoch(end_offset, epoch), self._state.copy()))

    async def write(self, snapshot: OffsetAndEpoch, state: ClusterState) -> None:
        """Store `state`, which must not change meanwhile, and apply retention. Raises StorageError."""
        if snapshot in self._log.snapshots:
            return
        slice_ = Slice(self._clock)
        batches = []
        for batch in snapshot_batches(
            state_records(state),
            epoch=snapshot.epoch,
            last_timestamp=self._log.last_timestamp,
            now_ms=self._clock.now_ms(),
            quorum_records=self._quorum_records_at(snapshot.offset),
            level=state.metadata_version,
        ):
            batches.append(batch)
            await slice_.maybe_end()
        await self._run_blocking(write_snapshot, self._log.log.directory, b"".join(batches), *snapshot, self._log.disk)
        self._log.snapshots.note_written(snapshot)
        await self._clean()

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._task is not None

    async def close(self) -> None:
        """Begin no more snapshots, and wait for the one being written."""
        self._is_closed = True
        if self._task is not None:
            await self._task

    def _is_due(self) -> bool:
        if self._log.appended_bytes - self._bytes_at_last >= self._bytes_between:
            return True
        return 0 < self._interval_ms <= self._clock.monotonic_ms() - self._last_ms

    async def _generate(self, snapshot: OffsetAndEpoch, state: ClusterState) -> None:
        try:
            await self.write(snapshot, state)
            logger.info("wrote a snapshot of the metadata offset=%d epoch=%d", *snapshot)
        except StorageError as error:
            logger.error("no snapshot of the metadata could be written offset=%d error=%s", snapshot.offset, error)
        except Exception:
            logger.exception("no snapshot of the metadata could be written offset=%d", snapshot.offset)
        finally:
            self._task = None

    async def _clean(self) -> None:
        """Delete the oldest snapshots, each with the log before the next one, until retention allows the rest."""
        found: list[SnapshotFile] = await self._run_blocking(list_snapshots, self._log.log.directory, self._log.disk)
        snapshots_bytes = sum(snapshot.size_bytes for snapshot in found)
        oldest_ms = self._clock.now_ms() - self._retention_ms
        removed: list[SnapshotFile] = []
        for snapshot, following in pairwise(found):
            is_excess = 0 <= self._retention_bytes < self._log.log.size_bytes + snapshots_bytes
            is_old = self._retention_ms >= 0 and snapshot.timestamp < oldest_ms
            if not is_excess and not is_old:
                break
            self._log.delete_before(following.snapshot, now_ms=self._clock.now_ms())
            if snapshot.snapshot in self._log.snapshots:
                self._log.snapshots.forget(snapshot.snapshot)
            snapshots_bytes -= snapshot.size_bytes
            removed.append(snapshot)
        if removed:
            await self._run_blocking(self._log.take_deletions([snapshot.path for snapshot in removed]))
