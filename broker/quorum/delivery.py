"""Delivery: tells this node's listeners what the quorum has committed, and who leads it.

It works as a LoopJob, a batch or a snapshot a step, so that catching up holds the loop no longer than anything else does. Listeners that
began together stay together: a batch is decoded once for all of them, and the first registered hears first.

Source: KafkaRaftClient's listener contexts (updateListenersProgress).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator

from broker.loop.clock import Clock
from broker.loop.job import LoopJob
from broker.quorum.listening import BatchReader, ListenerContext
from broker.quorum.log import QuorumLog
from broker.quorum.quorum import Batch, QuorumListener
from broker.quorum.raft import Raft

UNCOMMITTED_BATCHES_MAX = 10_000
"""Batches that may wait for their commit; more are refused, and clients try again."""


class Delivery:
    """Owns the listeners' positions. `on_failure` gets what a listener raised, or why the log cannot be read; the owner then calls
    `fail`."""

    def __init__(self, raft: Raft, log: QuorumLog, reader: BatchReader, clock: Clock, on_failure: Callable[[Exception], None]) -> None:
        self._raft = raft
        self._log = log
        self._reader = reader
        self._on_failure = on_failure
        self._listeners: list[ListenerContext] = []
        self._job = LoopJob(clock, self._tell)
        self._proposed: deque[Batch] = deque()
        """This node's own batches of this epoch, not heard by all yet: listeners get these records, not copies decoded from the log."""
        self._proposed_epoch = 0
        self._caught_up: asyncio.Future[None] | None = None
        self._catch_up_offset: int | None = None
        self._is_closed = False

    def register(self, listener: QuorumListener) -> None:
        """Tell `listener` everything, from the beginning on."""
        self._listeners.append(ListenerContext(listener))
        self.resume()

    @property
    def is_full(self) -> bool:
        """Whether UNCOMMITTED_BATCHES_MAX of this node's own batches wait."""
        return len(self._proposed) >= UNCOMMITTED_BATCHES_MAX

    def note_proposed(self, batch: Batch) -> None:
        """This node has appended `batch` as the leader."""
        if batch.epoch != self._proposed_epoch:
            self._proposed.clear()
            self._proposed_epoch = batch.epoch
        self._proposed.append(batch)

    def resume(self) -> None:
        """More is committed."""
        if not self._is_closed:
            self._job.resume()

    def resume_if_due(self) -> None:
        """The core has made a step: another node may lead, or the committed end may be known now."""
        if self._listeners and any(context.wants_leader(self._raft) for context in self._listeners):
            self.resume()
        elif self._catch_up_offset is None and self._caught_up is not None and self._raft.committed_end_offset is not None:
            self.resume()  # if a snapshot brought everything, nothing is committed that would end the wait for it

    async def caught_up(self) -> None:
        """Returns once the listeners have heard all that the quorum had committed when its leader was first heard of, and who leads.

        Raises what `fail` is given meanwhile."""
        if self._caught_up is None:
            self._caught_up = asyncio.get_running_loop().create_future()
            self.resume()
        await self._caught_up

    def close(self) -> None:
        """Tell what is committed before this returns, and no more after that. Idempotent."""
        while self._job.is_waiting:
            self._job.stop()
            for _ in self._tell():
                pass
        self._is_closed = True

    def fail(self, error: Exception) -> bool:
        """Tell nothing more. Returns whether `caught_up` was awaited, and raises `error` there."""
        self._is_closed = True
        self._job.stop()
        if self._caught_up is None or self._caught_up.done():
            return False
        self._caught_up.set_exception(error)
        return True

    def _tell(self) -> Generator[None, None, None]:
        try:
            while not self._is_closed and self._tell_next():
                yield
            if self._is_closed:
                return
            for context in self._listeners:
                context.maybe_change_leader(self._raft)
        except Exception as error:
            # Also a bug of a listener: what this node makes of the log would differ from what the others make of it.
            self._on_failure(error)
            return
        self._maybe_catch_up()

    def _tell_next(self) -> bool:
        """Tell those listeners that are furthest behind one batch, or a snapshot. Returns False when all have heard everything."""
        committed = self._raft.high_watermark
        if committed is None or not self._listeners:
            return False
        next_offset = min(context.next_offset for context in self._listeners)
        if next_offset >= committed:
            return False
        behind = [context for context in self._listeners if context.next_offset == next_offset]
        if behind[0].needs_snapshot(self._log.start_offset):
            snapshot = self._log.latest_snapshot
            for context in behind:
                if snapshot is None:
                    context.next_offset = 0
                else:
                    context.load(self._reader.open_snapshot(snapshot))
            return True
        batch = self._find_proposed(next_offset) or self._reader.read(next_offset, committed)
        for context in behind:
            context.commit(batch)
        return True

    def _find_proposed(self, offset: int) -> Batch | None:
        """This node's own batch at `offset`, as it was proposed."""
        proposed = self._proposed
        if self._proposed_epoch != self._raft.epoch:
            proposed.clear()  # the leader of a newer epoch may have had them cut off: the log knows what is left of them
        while proposed and proposed[0].offset < offset:
            proposed.popleft()
        return proposed[0] if proposed and proposed[0].base_offset == offset else None

    def _maybe_catch_up(self) -> None:
        if self._caught_up is None or self._caught_up.done():
            return
        if self._catch_up_offset is None:
            self._catch_up_offset = self._raft.committed_end_offset
        target = self._catch_up_offset
        if target is not None and all(context.next_offset >= target for context in self._listeners):
            self._caught_up.set_result(None)
