"""QuorumDriver: runs this node's raft replica on the loop: its timers, its disk, its peers and its listeners.

It keeps the core's rule: a vote is on the disk before anything of the same Ready leaves, and the log is synchronised off the loop before
the core is told that it is. Proposals made while an fsync runs share the next one. Listeners get what is committed in slices of
SLICE_US, so that catching up holds the loop no longer than anything else does.

Source: org.apache.kafka.raft.KafkaRaftClientDriver, KafkaRaftClient's listener contexts.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from broker.clock import Clock, Timer
from broker.deferred import Deferred
from broker.quorum.listening import Batch, BatchReader, ListenerContext
from broker.quorum.log import QuorumLog
from broker.quorum.quorum import QuorumListener
from broker.quorum.raft import Outgoing, Ready
from broker.quorum.raft_state import Vote
from broker.quorum.replica import RaftReplica
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError
from storage.flush import FlushWork

logger = logging.getLogger("barnabas.quorum")

UNCOMMITTED_BATCHES_MAX = 10_000
"""Batches that may wait for their commit; more are refused, and clients try again."""
SLICE_US = 2_000
"""Microseconds of listeners' work before the loop serves others."""

RunBlocking = Callable[..., Awaitable[Any]]
"""Runs `function(*arguments)` off the loop."""


class Peers(Protocol):
    """The network as the driver sees it."""

    def send(self, outgoing: Outgoing, on_answer: Callable[[Any | None], None]) -> None:
        """Send the request; `on_answer` gets the response, or None when there will be none, once and later."""

    async def close(self) -> None: ...


class _Proposed(NamedTuple):
    """A batch of this node's own: listeners get these records themselves, not a copy decoded from the log."""

    base_offset: int
    batch: Batch


class QuorumDriver:
    """Owns the replica. Satisfies Quorum. `on_failure` hears, once, that this node can take no further part."""

    def __init__(
        self,
        replica: RaftReplica,
        log: QuorumLog,
        reader: BatchReader,
        *,
        clock: Clock,
        call_soon: Callable[..., Any],
        run_in_background: Callable[[Awaitable[Any]], None],
        run_blocking: RunBlocking,
        write_vote: Callable[[Vote], None],
        peers: Peers,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._replica = replica
        self._log = log
        self._reader = reader
        self._clock = clock
        self._call_soon = call_soon
        self._run_in_background = run_in_background
        self._run_blocking = run_blocking
        self._write_vote = write_vote
        self._peers = peers
        self._on_failure = on_failure
        self._listeners: list[ListenerContext] = []
        self._proposed: deque[_Proposed] = deque()
        self._timer: Timer | None = None
        self._is_writing_vote = False
        self._is_flushing = False
        self._is_delivery_due = False
        self._is_closed = False
        self._has_failed = False
        replica.on_high_watermark = self._deliver_soon

    # -- Quorum ----------------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        return self._replica.raft.leader_id

    @property
    def epoch(self) -> int:
        return self._replica.raft.epoch

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def register(self, listener: QuorumListener) -> None:
        self._listeners.append(ListenerContext(listener))
        self._deliver_soon()

    def propose(self, epoch: int, records: Sequence[Any]) -> int:
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The metadata log is closed.")
        if len(self._proposed) >= UNCOMMITTED_BATCHES_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Too many metadata changes are waiting.")
        base_offset = self._log.end_offset
        try:
            offset = self._replica.propose(epoch, records, now_ms=self._clock.monotonic_ms())
        except StorageError as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        self._proposed.append(_Proposed(base_offset, Batch(offset, epoch, records)))
        self._drive()
        return offset

    def resign(self, epoch: int) -> None:
        self._step(self._replica.resign, epoch)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take part. Blocks for the vote that the core may have to write at once. Raises StorageError."""
        ready = self._replica.take_ready()
        if ready.vote is not None:
            self._write_vote(ready.vote)
        self._send(ready)
        self._drive()

    async def close(self) -> None:
        """Resign if this node leads, and take no further part. The log is the caller's to close."""
        if not self._is_closed:
            self._step(self._replica.stop)
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._peers.close()

    def handle_request(self, message: Any, version: int, listener_name: str) -> Deferred:
        """A Deferred of the answer to a peer's or a client's request."""
        answer = Deferred()
        if self._is_closed:
            answer.complete(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            self._step(self._replica.handle_request, answer, message, version, listener_name)
        return answer

    def leader_has_crashed(self, node_id: int) -> None:
        """It is proven that the process of the leader `node_id` is gone."""
        self._step(self._replica.leader_has_crashed, node_id)

    # -- the core --------------------------------------------------------------------------------------------------

    def _step(self, event: Callable[..., None], *arguments: Any) -> None:
        if self._is_closed:
            return
        try:
            event(*arguments, now_ms=self._clock.monotonic_ms())
        except StorageError as error:
            self._fail(error)
            return
        self._drive()

    def _drive(self) -> None:
        """Do what the core wants done after an event."""
        if self._is_closed:
            return
        if not self._is_writing_vote:
            ready = self._replica.take_ready()
            if ready.vote is not None:
                self._is_writing_vote = True
                self._run_in_background(self._persist(ready, ready.vote))
            else:
                self._send(ready)
        if self._replica.needs_flush and not self._is_flushing:
            self._is_flushing = True
            self._run_in_background(self._flush())
        self._arm_timer()
        if self._listeners and any(context.wants_leader(self._replica.raft) for context in self._listeners):
            self._deliver_soon()

    async def _persist(self, ready: Ready, vote: Vote) -> None:
        try:
            await self._run_blocking(self._write_vote, vote)
        except (StorageError, OSError) as error:
            self._fail(error)
            return
        self._is_writing_vote = False
        if not self._is_closed:
            self._send(ready)
            self._drive()

    async def _flush(self) -> None:
        work: FlushWork | None = None
        try:
            work = self._log.log.take_flush()
            if work is not None:
                await self._run_blocking(work.run)
                self._log.log.flushed(work)
        except (StorageError, OSError) as error:
            if work is not None:
                work.release()
            self._fail(error)
            return
        self._is_flushing = False
        self._step(self._replica.log_is_durable)

    def _send(self, ready: Ready) -> None:
        for outgoing in ready.outgoing:
            self._peers.send(outgoing, functools.partial(self._answered, outgoing))
        for reply in ready.replies:
            if not reply.token.is_abandoned:
                reply.token.complete(reply.response)

    def _answered(self, outgoing: Outgoing, response: Any | None) -> None:
        self._step(self._replica.handle_response, outgoing, response)

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(self._replica.wake_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._clock.call_later(min(delay_ms, 60_000), self._step, self._replica.poll)

    # -- the listeners ---------------------------------------------------------------------------------------------

    def _deliver_soon(self) -> None:
        if not self._is_delivery_due and not self._is_closed:
            self._is_delivery_due = True
            self._call_soon(self._deliver)

    def _deliver(self) -> None:
        """Tell every listener what it has not heard yet, as far as it is committed."""
        self._is_delivery_due = False
        if self._is_closed:
            return
        end_us = self._clock.monotonic_us() + SLICE_US
        raft = self._replica.raft
        try:
            for context in self._listeners:
                if raft.high_watermark is not None:
                    for batch in self._batches_for(context, raft.high_watermark):
                        context.commit(batch)
                        if self._clock.monotonic_us() >= end_us:
                            self._deliver_soon()
                            return
                context.maybe_change_leader(raft)
        except Exception as error:
            # Also a bug of a listener: what this node makes of the log would differ from what the others make of it.
            self._fail(error)

    def _batches_for(self, context: ListenerContext, high_watermark: int) -> Iterable[Batch]:
        """What `context` is to hear next: its own proposals as they are, anything else from the log; a snapshot first if it is behind."""
        while self._proposed and self._proposed[0].batch.offset < min(each.next_offset for each in self._listeners):
            self._proposed.popleft()
        snapshot = self._log.latest_snapshot
        if context.next_offset < high_watermark and context.needs_snapshot(self._log.start_offset):
            if snapshot is not None:
                context.load(self._reader.open_snapshot(snapshot))
            else:
                context.next_offset = 0
        own = {proposed.base_offset: proposed.batch for proposed in self._proposed} if self._proposed else {}
        while context.next_offset < high_watermark:
            batch = own.get(context.next_offset)
            if batch is not None and batch.offset < high_watermark:
                yield batch
            else:
                yield from self._reader.read(context.next_offset, high_watermark)

    def _fail(self, error: Exception) -> None:
        if self._has_failed:
            return
        self._has_failed = self._is_closed = True
        logger.error("the metadata log failed: %s", error, exc_info=None if isinstance(error, StorageError) else error)
        self._on_failure(error)
