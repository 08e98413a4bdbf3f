"""The metadata quorum: where records are proposed and from where they come back committed, in order.

`Quorum` is the seam: the KRaft quorum of several nodes takes the place of `SingleNodeQuorum` without the controller or a handler
noticing. A quorum of one elects itself at its start, and commits what its disk has synchronised: proposals made while an fsync
runs share the next one.

Source: org.apache.kafka.raft.RaftClient, KafkaRaftClient.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from broker.clock import Clock
from broker.metadata.metadata_log import MetadataLog
from broker.metadata.snapshot_generator import SnapshotGenerator
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError

logger = logging.getLogger("barnabas.metadata")

PENDING_PROPOSALS_MAX = 10_000
"""Proposals that may wait for their commit; more are refused, and clients try again."""

SNAPSHOT_RECORDS_MIN = 1000
"""Records replayed at a start, some 30 ms of it, from which on a snapshot is written."""

COMMIT_SLICE_US = 2_000
"""Microseconds of applying committed proposals before the loop serves its connections again; one that has begun is finished first."""

RunBlocking = Callable[..., Awaitable[Any]]
"""Runs `function(*arguments)` off the loop."""

OnCommitted = Callable[[KafkaError | None], None]
"""Called once: with None when the proposal and everything before it is committed and applied, or with why it never will be."""


class Quorum(Protocol):
    """What the controller asks of the metadata quorum."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def next_offset(self) -> int:
        """The offset that the first record of the next proposal gets."""
        ...

    def propose(self, records: Sequence[Any], on_committed: OnCommitted) -> None:
        """Append `records` as one batch, to be committed together; without records, wait for what was proposed before.

        Raises KafkaError NOT_CONTROLLER when this node does not lead, and then nothing was appended.
        """
        ...

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log was long when it was loaded: the next start is faster with a snapshot of the state it led to."""
        ...

    async def write_snapshot(self, records: Sequence[Any]) -> None:
        """Store `records`, which make the state that the log led to when it was loaded, in its place."""
        ...


class _Proposal(NamedTuple):
    end_offset: int
    records: Sequence[Any]
    on_committed: OnCommitted


class SingleNodeQuorum:
    """A quorum of this node alone. `apply` gets each committed batch's records; `on_failure` hears, once, that it cannot go on."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        node_id: int,
        clock: Clock,
        run_blocking: RunBlocking,
        apply: Callable[[Sequence[Any]], None],
        on_failure: Callable[[Exception], None],
        snapshots: SnapshotGenerator,
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._clock = clock
        self._run_blocking = run_blocking
        self._apply = apply
        self._on_failure = on_failure
        self._snapshots = snapshots
        self._pending: deque[_Proposal] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._is_closed = True
        self._has_failed = False
        self.leader_epoch = 0

    @property
    def next_offset(self) -> int:
        return self._log.end_offset

    def start(self) -> None:
        """Load the log into `apply`, then lead it in a new epoch. Blocks; call it before the broker serves. Raises StorageError."""
        self._log.load(self._apply)
        self.leader_epoch = self._log.last_epoch + 1
        self._log.begin_epoch(self._node_id, self.leader_epoch, now_ms=self._clock.now_ms())
        self._is_closed = False

    def propose(self, records: Sequence[Any], on_committed: OnCommitted) -> None:
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The metadata log is closed.")
        if len(self._pending) >= PENDING_PROPOSALS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Too many metadata changes are waiting.")
        end_offset = self._log.end_offset
        if records:
            try:
                end_offset = self._log.append(records, epoch=self.leader_epoch, now_ms=self._clock.now_ms())
            except StorageError as error:
                self._fail(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        elif not self._pending:
            on_committed(None)
            return
        self._pending.append(_Proposal(end_offset, records, on_committed))
        if self._committer is None:
            self._committer = asyncio.get_running_loop().create_task(self._commit_pending())

    @property
    def is_snapshot_due(self) -> bool:
        return self._log.replayed_records_count >= SNAPSHOT_RECORDS_MIN

    async def write_snapshot(self, records: Sequence[Any]) -> None:
        log = self._log
        await self._snapshots.write(records, end_offset=log.loaded_end_offset, epoch=log.loaded_epoch, last_timestamp=log.loaded_timestamp)

    async def close(self) -> None:
        """Commit what is pending, then close the log."""
        self._is_closed = True
        if self._committer is not None:
            await self._committer
        await self._snapshots.close()
        self._log.close()

    async def _commit_pending(self) -> None:
        """Synchronise and commit until nothing is pending. One of these runs at a time."""
        try:
            while self._pending:
                work = self._log.log.take_flush()
                if work is not None:
                    try:
                        await self._run_blocking(work.run)
                    except BaseException:
                        work.release()
                        raise
                    self._log.log.flushed(work)
                await self._commit_up_to(self._log.log.durable_end_offset)
        except Exception as error:
            # Also a bug while applying: this broker's rooms no longer agree with the log, and a restart makes them.
            self._fail(error)
        finally:
            self._committer = None

    async def _commit_up_to(self, offset: int) -> None:
        """Commit in the order of the log; what an fsync made durable together is applied in turns with everything else."""
        turn_end_us = self._clock.monotonic_us() + COMMIT_SLICE_US
        while self._pending and self._pending[0].end_offset <= offset:
            if self._clock.monotonic_us() >= turn_end_us:
                await asyncio.sleep(0)
                turn_end_us = self._clock.monotonic_us() + COMMIT_SLICE_US
                continue
            proposal = self._pending.popleft()
            if proposal.records:
                self._apply(proposal.records)
                self._snapshots.note_commit(proposal.end_offset, self.leader_epoch)
            proposal.on_committed(None)

    def _fail(self, error: Exception) -> None:
        """This broker has lost its say: nothing pending will be committed here any more. Only the first failure counts."""
        if self._has_failed:
            return
        self._has_failed = self._is_closed = True
        logger.error("the metadata log failed: %s", error, exc_info=None if isinstance(error, StorageError) else error)
        pending, self._pending = self._pending, deque()
        for proposal in pending:
            proposal.on_committed(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written."))
        self._on_failure(error)
