"""QuorumDriver: runs this node's raft replica on the loop: its timers, its disk and its peers. A Delivery tells the listeners.

It keeps the core's rule: a vote is on the disk before anything of the same Ready leaves, and the log is synchronised off the loop before
the core is told that it is. Proposals made while an fsync runs share the next one.

Source: org.apache.kafka.raft.KafkaRaftClientDriver.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock, Timer, wall_clock_ms
from broker.loop.deferred import Deferred
from broker.quorum.commit_times import CommitTimes
from broker.quorum.delivery import Delivery
from broker.quorum.listening import BatchReader
from broker.quorum.log import QuorumLog
from broker.quorum.quorum import Batch, QuorumListener
from broker.quorum.raft import Outgoing, Ready
from broker.quorum.raft_state import Vote
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import Address
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError
from storage.flush import FlushWork

logger = logging.getLogger("barnabas.quorum")

WriteVote = Callable[[Vote, int, Sequence[int]], None]
"""Stores the vote durably, in the form of this kraft.version, with the ids of the voters. Blocks. Raises StorageError."""


class Peers(Protocol):
    """The network as the driver sees it."""

    def send(self, outgoing: Outgoing, on_answer: Callable[[Any | None], None]) -> None:
        """Send the request; `on_answer` gets the response, or None when there will be none, once and later."""

    async def close(self) -> None: ...


class NoPeers:
    """The network of a quorum of one. Satisfies Peers."""

    def send(self, outgoing: Outgoing, on_answer: Callable[[Any | None], None]) -> None:
        raise AssertionError("the only voter has nobody to ask")

    async def close(self) -> None:
        pass


class QuorumDriver:
    """Owns the replica. Satisfies Quorum. `on_failure` hears, once, that this node can take no further part."""

    def __init__(
        self,
        replica: RaftReplica,
        log: QuorumLog,
        reader: BatchReader,
        *,
        clock: Clock,
        run_blocking: RunBlocking,
        write_vote: WriteVote,
        peers: Peers,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._replica = replica
        self._log = log
        self._clock = clock
        self._run_blocking = run_blocking
        self._write_vote = write_vote
        self._peers = peers
        self._on_failure = on_failure
        self._delivery = Delivery(replica.raft, log, reader, clock, self._fail)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self.commit_times = CommitTimes(clock)
        self._timer: Timer | None = None
        self._is_writing_vote = False
        self._is_flushing = False
        self._is_closing = False
        self._is_closed = False
        replica.on_high_watermark = self._high_watermark_moved
        replica.raft.to_wall_clock_ms = functools.partial(wall_clock_ms, clock)

    # -- Quorum ----------------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        return self._replica.raft.leader_id

    @property
    def leader_address(self) -> Address | None:
        """Where the leader is reached on our controller listener; None when that is not known."""
        raft = self._replica.raft
        return raft.state.leader_endpoints.get(raft.config.listener_name)

    @property
    def is_voter(self) -> bool:
        return self._replica.raft.is_voter

    @property
    def epoch(self) -> int:
        return self._replica.raft.epoch

    @property
    def committed_end_offset(self) -> int | None:
        return self._replica.raft.committed_end_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def register(self, listener: QuorumListener) -> None:
        self._delivery.register(listener)

    def propose(self, epoch: int, records: Sequence[Any]) -> int:
        if self._is_closed or self._is_closing:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The metadata log is closed.")
        if self._delivery.is_full:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Too many metadata changes are waiting.")
        base_offset = self._log.end_offset
        try:
            offset = self._replica.propose(epoch, records, now_ms=self._clock.monotonic_ms())
        except StorageError as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        self._delivery.note_proposed(Batch(base_offset, offset, epoch, records))
        self.commit_times.note_proposed(offset, epoch)
        self._drive()
        return offset

    def resign(self, epoch: int) -> None:
        self._step(self._replica.resign, epoch)

    @property
    def kraft_version(self) -> int:
        return self._replica.raft.kraft_version

    @property
    def voter_ids(self) -> Sequence[int]:
        return self._replica.raft.voters.ids

    def upgrade_kraft_version(self, epoch: int, level: int, *, is_validated_only: bool) -> None:
        if self._is_closed or self._is_closing or epoch != self.epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum in the epoch of the upgrade.")
        try:
            self._replica.upgrade_kraft_version(level, is_validated_only=is_validated_only, now_ms=self._clock.monotonic_ms())
        except StorageError as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        self._drive()

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take part. Blocks for the vote that the core may have to write at once. Raises StorageError."""
        ready = self._replica.take_ready()
        if ready.vote is not None:
            self._write_vote(*self._to_write(ready.vote))
        self._send(ready)
        self._drive()

    async def caught_up(self) -> None:
        """Returns once the listeners have heard all that the quorum had committed when its leader was first heard of, and who leads.

        Raises what made this node fail meanwhile."""
        if self._failure is not None:
            raise self._failure
        await self._delivery.caught_up()

    async def close(self) -> None:
        """Make durable what was proposed, and tell what is committed by that; then resign if this node leads, and take no further part.
        The log is the caller's to close."""
        self._is_closing = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._delivery.close()
        if not self._is_closed:
            self._step(self._replica.stop)
        self._is_closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._timer is not None:
            self._timer.cancel()
        await self._peers.close()

    def handle_request(self, message: Any, version: int, listener_name: str) -> Deferred:
        """As Quorum.handle_request; also to a peer's request."""
        answer = Deferred()
        if self._is_closed:
            answer.complete(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            self._step(self._replica.handle_request, answer, message, version, listener_name)
        return answer

    def leader_has_failed(self, node_id: int) -> None:
        """It is proven that the process of the leader `node_id` is gone, or it does not answer this node."""
        self._step(self._replica.leader_has_failed, node_id)

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

    def _high_watermark_moved(self) -> None:
        raft = self._replica.raft
        self.commit_times.note_committed(raft.high_watermark or 0, raft.epoch)
        self._delivery.resume()

    def _drive(self) -> None:
        """Do what the core wants done after an event."""
        if self._is_closed:
            return
        if not self._is_writing_vote:
            ready = self._replica.take_ready()
            if ready.vote is not None:
                self._is_writing_vote = True
                self._begin(self._persist(ready, ready.vote))
            else:
                self._send(ready)
        if self._replica.needs_flush and not self._is_flushing:
            self._is_flushing = True
            self._begin(self._flush())
        self._arm_timer()
        self._delivery.resume_if_due()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _persist(self, ready: Ready, vote: Vote) -> None:
        try:
            await self._run_blocking(self._write_vote, *self._to_write(vote))
        except (StorageError, OSError) as error:
            self._fail(error)
            return
        self._is_writing_vote = False
        if not self._is_closed:
            self._send(ready)
            self._drive()

    def _to_write(self, vote: Vote) -> tuple[Vote, int, Sequence[int]]:
        raft = self._replica.raft
        return vote, raft.kraft_version, raft.voters.ids

    async def _flush(self) -> None:
        work: FlushWork | None = None
        try:
            work = self._log.log.take_flush()
            if work is not None:
                await self._run_blocking(work.run)
                self._log.log.flushed(work)
        except BaseException as error:
            if work is not None:
                work.release()
            if not isinstance(error, Exception):
                raise
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

    def _fail(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        is_start = self._delivery.fail(error)
        if not is_start or not isinstance(error, StorageError):  # the start itself says why it ends
            logger.error("the metadata log failed: %s", error, exc_info=None if isinstance(error, StorageError) else error)
        self._on_failure(error)
