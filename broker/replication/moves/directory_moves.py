"""DirectoryMoves: moves replicas of this broker between its log directories, as clients request it.

Only num.replica.alter.log.dirs.threads replicas copy at a time (by default the number of log directories), in the order of their names, so
that each move is soon over. They take steps in turn, in slices of the loop's time. The object is created when it is first needed.
Source: kafka.server.ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from broker.loop.job import LoopJob
from broker.replication.moves.replica_move import MoveTools, Phase, ReplicaMove, remove_in_thread
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError
from storage.files import FILE_NAME_LENGTH_MAX, future_directory_name

if TYPE_CHECKING:
    from broker.replication.hosted_partitions import HostedPartitions
    from broker.replication.partition import Partition
    from storage.log import Log

log = logging.getLogger("barnabas.replication")

MoveKey = tuple[str, int]

_UNIQUE_HEX = "0" * 32


class DirectoryMoves:
    """See the module's docstring. `copies_max` is the number of replicas that copy at a time."""

    def __init__(self, hosted: HostedPartitions, tools: MoveTools, *, copies_max: int) -> None:
        self._hosted = hosted
        self._tools = tools._replace(on_left=self._note_left)
        self._on_left = tools.on_left
        self._wanted: dict[MoveKey, str] = {}  # the target of a replica whose last move is still being cleaned up
        self._copies_max = copies_max
        self._moves: dict[MoveKey, ReplicaMove] = {}
        self._copying: dict[ReplicaMove, None] = {}
        self._ready: deque[ReplicaMove] = deque()
        self._job = LoopJob(tools.clock, self._run)
        self._is_stopped = False

    def resume(self, futures: Iterable[Log]) -> None:
        """Continue the moves that an earlier process began: those whose copy and whose partition are still here."""
        for future in futures:
            partition = self._hosted.find(future.topic, future.partition)
            if partition is not None and not partition.is_offline and (future.topic, future.partition) not in self._moves:
                self._start(partition, future)

    def stop(self) -> None:
        """Stop copying; the next start continues."""
        self._is_stopped = True
        self._job.stop()
        for move in self._moves.values():
            move.stop()
        self._ready.clear()

    @property
    def lag_max(self) -> int:
        """The largest lag of a copy, in records."""
        return max((move.lag for move in self._moves.values()), default=0)

    def find_lag(self, topic: str, partition: int) -> int | None:
        """How far the end of the replica's copy is behind its log, in offsets; None if it does not move."""
        move = self._moves.get((topic, partition))
        return None if move is None else move.lag

    # -- what clients ask for --------------------------------------------------------------------------------------

    def alter(self, topic: str, index: int, path: str) -> ErrorCode:
        """Move the replica to the log directory at `path`. If it is there already, a move to another directory ends. A partition that is
        not hosted here will be created there."""
        if len(future_directory_name(topic, index, _UNIQUE_HEX)) > FILE_NAME_LENGTH_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        manager = self._tools.log_manager
        directory = manager.find_directory(path)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if directory.is_cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if manager.find_log(topic, index) is None:
            manager.futures.prefer(topic, index, directory)
        try:
            partition = self._hosted.get(topic, index)
        except KafkaError as error:
            return ErrorCode.REPLICA_NOT_AVAILABLE if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else ErrorCode(error.code)
        self._wanted.pop((topic, index), None)
        future = manager.futures.find(topic, index)
        if future is not None and future.log_dir != str(directory.path):
            self.cancel(topic, index)
            future = None
        if future is not None or partition.log.log_dir == str(directory.path):
            return ErrorCode.NONE
        if len(manager.online_directories) < len(manager.directories):
            return ErrorCode.KAFKA_STORAGE_ERROR  # a copy of an earlier move may lie in one that is offline
        if manager.futures.is_leaving((topic, index)):
            self._wanted[topic, index] = path
            return ErrorCode.NONE
        try:
            future = manager.futures.create(partition.log, directory, self._tools.clock.now_ms())
        except StorageError as error:
            self._tools.log_directories.fail(error.path or directory.path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._start(partition, future)
        return ErrorCode.NONE

    def cancel(self, topic: str, index: int) -> None:
        """End the replica's move: it stays where it is, and its copy is deleted."""
        move = self._moves.pop((topic, index), None)
        if move is not None:
            log.info("the move of %r has ended: another directory is wanted", move)
            self._forget(move)
        for work in self._tools.log_manager.futures.remove(topic, index):
            remove_in_thread(work, self._tools)

    def drop_ended(self) -> None:
        """Drop the moves whose partition is gone, and those whose copy or source was lost with its log directory."""
        for key, move in list(self._moves.items()):
            if not move.is_current:
                del self._moves[key]
                self._forget(move)

    # -- turns -----------------------------------------------------------------------------------------------------

    def _note_left(self) -> None:
        self._on_left()
        for key, path in list(self._wanted.items()):
            if not self._is_stopped and not self._tools.log_manager.futures.is_leaving(key):
                del self._wanted[key]
                self.alter(*key, path)

    def _start(self, partition: Partition, future: Log) -> None:
        log.info("%r moves from %s to %s", partition, partition.log.log_dir, future.log_dir)
        key = partition.topic, partition.partition
        earlier = self._moves.pop(key, None)
        if earlier is not None:
            self._forget(earlier)
        self._moves[key] = ReplicaMove(partition, future, self._tools, self._note_ready)
        self._admit()

    def _forget(self, move: ReplicaMove) -> None:
        move.end()
        self._copying.pop(move, None)
        self._admit()

    def _admit(self) -> None:
        """Start the next copies."""
        free_count = self._copies_max - len(self._copying)
        if free_count <= 0:
            return
        waiting = sorted(key for key, move in self._moves.items() if move.phase is Phase.COPYING and move not in self._copying)
        for key in waiting[:free_count]:
            self._copying[self._moves[key]] = None
            self._note_ready(self._moves[key])

    def _note_ready(self, move: ReplicaMove) -> None:
        if not self._is_stopped and move not in self._ready:
            self._ready.append(move)
            self._job.resume()

    def _run(self) -> Generator[None, None, None]:
        while self._ready:
            self._step(self._ready.popleft())
            yield

    def _step(self, move: ReplicaMove) -> None:
        is_queued = move.phase is Phase.COPYING and move not in self._copying
        if move.step(may_copy=not is_queued) and move not in self._ready:
            if move.phase is Phase.PROMOTING:
                self._ready.appendleft(move)  # first again: it has to append faster than producers do
            else:
                self._ready.append(move)
        if move.phase is not Phase.COPYING and move in self._copying:
            del self._copying[move]
            self._admit()
        if move.phase is Phase.OVER or move.phase is Phase.SETTLING:
            self._drop(move)

    def _drop(self, move: ReplicaMove) -> None:
        key = move.partition.topic, move.partition.partition
        if self._moves.get(key) is move:
            del self._moves[key]
