"""ReplicaMove: the move of one replica to another log directory of this broker, from the first byte there to the removal of the old log.

    COPYING ─ caught up, flushed ─> TELLING ─ the controller has it ─> PROMOTING ─ caught up ─> SETTLING ─ durable ─> over

The controller is told before the copy takes over (KIP-858): if the target fails in between, it knows which replicas are lost. A move that
ends before the take-over tells the controller so. The take-over is one step of the loop: no append and no read runs between the copy of the
last batch and the change of the partition's log.

The low watermark of DeleteRecords counts the copy until the take-over. So the copy follows the log start in every phase, also while it
waits for other moves. (Kafka's copy follows only when it is its turn to be copied, so DeleteRecords waits for the moves before it and often
times out.)
Source: kafka.server.ReplicaAlterLogDirsThread.PromotionState, kafka.cluster.Partition.maybeReplaceCurrentWithFutureReplica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.replication.moves.log_copy import CopyStep, LogCopy
from broker.replication.partition_role import DELETED, OFFLINE
from protocol.errors import KafkaError
from storage.errors import StorageError, is_descriptor_shortage

if TYPE_CHECKING:
    from broker.loop.blocking import BlockingResult, RunBlocking
    from broker.loop.clock import Clock
    from broker.replication.log_directories import LogDirectories
    from broker.replication.partition import Partition
    from broker.replication.quotas import ReplicationQuota
    from broker.replication.waiting_requests import WaitingRequests
    from storage.log import Log
    from storage.log_directory import RemovalWork
    from storage.log_manager import LogManager

log = logging.getLogger("barnabas.replication")

RETRY_MS = 1_000  # after a failure that is not a disk's


class AssignDirectory(Protocol):
    """BrokerLifecycle.assign_directory."""

    def __call__(self, topic_id: bytes, index: int, directory_id: bytes, on_accepted: Callable[[], None] | None = None, /) -> None: ...


class Phase(Enum):
    COPYING = "copying"
    TELLING = "telling the controller"
    PROMOTING = "taking over"
    SETTLING = "settling"
    OVER = "over"


COUNTED_PHASES = (Phase.TELLING, Phase.PROMOTING)  # the metadata may name the copy's directory as the replica's


class MoveTools(NamedTuple):
    """What all moves of a broker share. `assign_directory` is None if the controller need not be told."""

    clock: Clock
    log_manager: LogManager
    log_directories: LogDirectories
    waiting: WaitingRequests
    run_blocking: RunBlocking
    quota: ReplicationQuota
    may_truncate: Callable[[Log, int], bool]
    on_left: Callable[[], None]
    """Called when a directory is out of the way of a new one of that name."""
    assign_directory: AssignDirectory | None


class ReplicaMove:
    """See the module's docstring. `on_ready(move)` is called when it can go on. Owner: DirectoryMoves."""

    def __init__(self, partition: Partition, future: Log, tools: MoveTools, on_ready: Callable[[ReplicaMove], None]) -> None:
        self.partition = partition
        self.future = future
        self.phase = Phase.COPYING
        self._tools = tools
        self._on_ready = on_ready
        self._source = source = partition.log
        self._relocation = tools.log_manager.futures.relocation_of(future)
        self._is_flushed = False
        partition.in_sync.move = self
        self._copy = LogCopy(
            source,
            future,
            clock=tools.clock,
            run_blocking=tools.run_blocking,
            quota=tools.quota,
            may_truncate=tools.may_truncate,
            on_ready=self._wake,
            on_error=self._fail_disk,
        )

    def __repr__(self) -> str:
        return f"{self.partition!r} to {self.future.log_dir}"

    @property
    def lag(self) -> int:
        return self._copy.lag

    @property
    def is_current(self) -> bool:
        """Whether the log and the copy of this move are still the partition's: neither was deleted, lost or replaced."""
        partition = self.partition
        if partition.role is DELETED or partition.role is OFFLINE or partition.log is not self._source:
            return False
        return self._tools.log_manager.futures.find(partition.topic, partition.partition) is self.future

    @property
    def log_start_offset(self) -> int:
        """Where the copy begins."""
        return self.future.log_start_offset

    def follow_start(self) -> None:
        """As MovingReplica.follow_start."""
        if self.log_start_offset < self._source.log_start_offset:
            self._wake()

    def step(self, *, may_copy: bool) -> bool:
        """Do one step, of well below a millisecond. Returns whether there is more to do now. If not, `on_ready` will be called, unless
        the move is over. Without `may_copy` the step only follows the log start."""
        if self.phase is Phase.OVER or self.phase is Phase.SETTLING:
            return False
        if not self.is_current:
            self.end()
            return False
        start_offset = self.log_start_offset
        try:
            if may_copy:
                return self._advance()
            self._copy.follow_start()
        except KafkaError as error:
            log.error("the move of %r has failed: %s", self, error)
            self.end()
        except StorageError as error:
            self._fail_disk(error)
        finally:
            if self.log_start_offset != start_offset:
                self._tools.waiting.record_deletions.notify(self.partition)
        return False

    def end(self) -> None:
        """End the move. A controller that was told of the target is told that the replica has stayed. The caller removes the copy's
        files."""
        if self.phase in COUNTED_PHASES:
            self._assign(self._source.log_dir, None)
        self.stop()
        self._count_no_more()
        self._tools.waiting.record_deletions.notify(self.partition)

    def stop(self) -> None:
        """Stop with the broker: the controller is not told."""
        self._copy.close()
        if self.phase is not Phase.SETTLING:
            self.phase = Phase.OVER

    def _count_no_more(self) -> None:
        if self.partition.in_sync.move is self:
            self.partition.in_sync.move = None

    # -- step by step ----------------------------------------------------------------------------------------------

    def _advance(self) -> bool:
        outcome = self._copy.step()
        if outcome is CopyStep.CAUGHT_UP:
            return self._caught_up()
        return outcome is not CopyStep.WAITING

    def _caught_up(self) -> bool:
        if self.phase is Phase.TELLING:
            return False
        if self.phase is Phase.PROMOTING:
            if not self._copy.is_flushing:
                self._take_over()
            return False
        if not self._is_flushed:
            self._copy.flush(self._note_flushed)
            return False
        self._relocation.prepare()
        self.phase = Phase.TELLING
        if self._tools.assign_directory is None:
            self.phase = Phase.PROMOTING
            return True
        self._assign(self.future.log_dir, self._note_told)
        return False

    def _assign(self, log_dir: str, on_accepted: Callable[[], None] | None) -> None:
        partition, assign = self.partition, self._tools.assign_directory
        directory_id = self._tools.log_manager.find_directory_id(log_dir)
        if assign is not None and directory_id is not None:
            assign(partition.topic_id, partition.partition, directory_id, on_accepted)

    def _note_flushed(self) -> None:
        self._is_flushed = True
        self._wake()

    def _note_told(self) -> None:
        if self.phase is Phase.TELLING:
            self.phase = Phase.PROMOTING
            self._wake()

    def _take_over(self) -> None:
        """Replace the partition's log by the copy. Both end at the same offset, and nothing else runs meanwhile."""
        tools, partition, future = self._tools, self.partition, self.future
        self._copy.take_over_state()
        tools.log_manager.futures.promote(self._relocation)
        self._copy.close()
        self.phase = Phase.SETTLING
        partition.replace_log(future)
        self._count_no_more()
        log.info("%r has moved from %s to %s", partition, self._source.log_dir, future.log_dir)
        settled_offset = future.log_end_offset
        # Records that were durable in the old log must be durable in the new one before the old one is removed. Requests may wait for that
        # too.
        tools.log_directories.request_flush((partition,))
        tools.waiting.wake(partition)
        tools.log_directories.when_flushed(lambda: self._settle(settled_offset))

    def _settle(self, end_offset: int) -> None:
        """Called after a flush: remove the replaced log if all its records are durable in the new one."""
        self.phase = Phase.OVER
        partition, manager = self.partition, self._tools.log_manager
        is_lost = manager.find_log(partition.topic, partition.partition) is not self.future
        if is_lost or self.future.durable_end_offset >= end_offset:
            for work in manager.futures.retire(partition.topic, partition.partition, is_needed=is_lost):
                remove_in_thread(work, self._tools)

    # -- failures --------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._on_ready(self)

    def _fail_disk(self, error: StorageError) -> None:
        if is_descriptor_shortage(error):
            log.error("the move of %r waits: %s", self, error)
            self._tools.clock.call_later(RETRY_MS, self._wake)
            return
        log.error("the move of %r has failed: %s", self, error)
        self._tools.log_directories.fail(error.path or self.future.directory, error)


def remove_in_thread(work: RemovalWork, tools: MoveTools) -> None:
    """Remove a closed log's directory in a thread."""

    def end(done: BlockingResult) -> None:
        try:
            done.result()
        except StorageError as error:
            tools.log_directories.fail(work.path, error)
        else:
            if tools.log_manager.futures.has_handed_out(work):
                tools.log_manager.removed(work)
        tools.on_left()

    tools.run_blocking(work.run).add_done_callback(end)
