"""DescribeLogDirs (key 35). Serves v1–v5.

Behaviour:
- Every log directory of this broker, by its absolute path, in the order of log.dirs, with the requested replicas in it (null: all), each
with the bytes of its segments.
- A replica that moves to another directory is listed in both. Its copy is a future replica; the lag of that is the distance of its end from
the replica's.
- The lag of a replica is the distance of its end from its high watermark: 0, except for a short time after a truncation; -1 while the
replica is not served.
- A directory that is offline is KAFKA_STORAGE_ERROR, without replicas.

Version notes:
- v3: an error code for the whole request.
- v4: the total and the usable bytes of the directory's volume (KIP-827).
- v5: whether the directory is cordoned (KIP-1066); not below metadata.version 4.3-IV0, which has no cordons.

Source: kafka.server.ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns
from broker.metadata.features import knows_cordoned_directories
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, without_frames
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.loop.blocking import RunBlocking
    from broker.replication.replica_manager import ReplicaManager
    from storage.log import Log
    from storage.log_directory import LogDirectory, VolumeSpace
    from storage.log_manager import LogManager

UNKNOWN_LAG = -1
VOLUMES_SINCE = 4

Topics = dict[str, DescribeLogDirsTopic]
"""One directory's, by name."""


def build(services: Services) -> Handler:
    log_manager, replica_manager, run_blocking = services.log_manager, services.replica_manager, services.run_blocking
    metadata = services.metadata

    def handle(context: RequestContext, request: DescribeLogDirsRequest) -> Any:
        return at_once_or_in_turns(_answer(context.api_version, request))

    def _answer(version: int, request: DescribeLogDirsRequest) -> Work:
        asked = yield from _asked(log_manager, request)
        found = yield from _describe_logs(log_manager, replica_manager, asked)
        spaces: dict[LogDirectory, VolumeSpace | StorageError] = {}
        if version >= VOLUMES_SINCE:
            spaces = yield from _off_the_loop(run_blocking, _read_spaces, log_manager.online_directories)
        # Read the directories' states last: one may have failed meanwhile.
        results = [_result(directory, found.get(str(directory.path), {}), spaces.get(directory)) for directory in log_manager.directories]
        if knows_cordoned_directories(metadata.state.features):
            for directory, result in zip(log_manager.directories, results, strict=True):
                result.is_cordoned = directory.is_cordoned and not result.error_code
        return DescribeLogDirsResponse(results=results)

    return handle


def _asked(log_manager: LogManager, request: DescribeLogDirsRequest) -> Generator[None, None, set[tuple[str, int]] | None]:
    """The partitions that the request names and that are here; None for all."""
    if request.topics is None:
        return None
    asked: set[tuple[str, int]] = set()
    for topic in request.topics:
        for index in topic.partitions:
            if log_manager.find_log(topic.topic, index) is not None or log_manager.futures.find(topic.topic, index) is not None:
                asked.add((topic.topic, index))
            yield
        yield
    return asked


def _describe_logs(
    log_manager: LogManager, replica_manager: ReplicaManager, asked: set[tuple[str, int]] | None
) -> Generator[None, None, dict[str, Topics]]:
    """The replicas in each log directory, by its path."""
    found: dict[str, Topics] = {}
    for log in log_manager.logs():
        yield
        if asked is not None and (log.topic, log.partition) not in asked:
            continue
        if log_manager.find_log(log.topic, log.partition) is not log:
            continue  # deleted, or lost with its directory, meanwhile
        _add(found, log, _lag(replica_manager, log), is_future=False)
    for log in log_manager.futures.futures():
        if asked is None or (log.topic, log.partition) in asked:
            _add(found, log, _future_lag(replica_manager, log), is_future=True)
    return found


def _add(found: dict[str, Topics], log: Log, lag: int, *, is_future: bool) -> None:
    topics = found.setdefault(log.log_dir, {})
    topic = topics.get(log.topic)
    if topic is None:
        topic = topics[log.topic] = DescribeLogDirsTopic(name=log.topic, partitions=[])
    topic.partitions.append(
        DescribeLogDirsPartition(partition_index=log.partition, partition_size=log.size_bytes, offset_lag=lag, is_future_key=is_future)
    )


def _lag(replica_manager: ReplicaManager, log: Log) -> int:
    partition = replica_manager.find_partition(log.topic, log.partition)
    if partition is None or partition.is_offline:
        return UNKNOWN_LAG
    return max(log.high_watermark - log.log_end_offset, 0)


def _future_lag(replica_manager: ReplicaManager, future: Log) -> int:
    partition = replica_manager.find_partition(future.topic, future.partition)
    if partition is None or partition.is_offline:
        return UNKNOWN_LAG
    return partition.log.log_end_offset - future.log_end_offset


def _result(directory: LogDirectory, topics: Topics, space: VolumeSpace | StorageError | None) -> DescribeLogDirsResult:
    log_dir = str(directory.path.absolute())
    if directory.is_offline or isinstance(space, StorageError):
        return DescribeLogDirsResult(log_dir=log_dir, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    result = DescribeLogDirsResult(log_dir=log_dir, topics=list(topics.values()))
    if space is not None:
        result.total_bytes, result.usable_bytes = space
    return result


def _read_spaces(directories: list[LogDirectory]) -> dict[LogDirectory, VolumeSpace | StorageError]:
    """Returns the space of each volume, or the error that hides it. May block."""
    spaces: dict[LogDirectory, VolumeSpace | StorageError] = {}
    for directory in directories:
        try:
            spaces[directory] = directory.read_space()
        except StorageError as error:
            spaces[directory] = without_frames(error)
    return spaces


def _off_the_loop(run_blocking: RunBlocking | None, function: Callable[..., Any], *arguments: Any) -> Generator[Deferred, Any, Any]:
    """Returns the function's result. A thread calls it, if there is a thread pool: a disk may hang for long."""
    if run_blocking is None:
        return function(*arguments)
    arrived = Deferred()
    run_blocking(function, *arguments).add_done_callback(lambda done: arrived.complete(done.exception() or done.result()))
    return (yield arrived)
