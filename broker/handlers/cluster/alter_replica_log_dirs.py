"""AlterReplicaLogDirs (key 34). Serves v1–v2.

Behaviour:
- Each replica of this broker that is named begins to move to the log directory of that path, or stays if it is there, which ends a move
  elsewhere. The answer does not wait: DescribeLogDirs shows the copy until it takes over.
- A partition that is not here is REPLICA_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION, and will be made in that directory once it comes.
- INVALID_REPLICA_ASSIGNMENT for a log directory that is cordoned, also where the replica is in it (KIP-1066).
- LOG_DIR_NOT_FOUND for a path that is none of this broker's log directories; KAFKA_STORAGE_ERROR for one that is offline, for a replica
  that is, and for every move to begin while any log directory is; INVALID_TOPIC_EXCEPTION if the copy's directory would have too long a
  name.
- A partition that is named twice goes where it is named last.

Version notes: v2 is flexible.

Not done: nothing of it; authorization is not here yet.

Source: kafka.server.ReplicaManager.alterReplicaLogDirs (KIP-113).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.pieces import Pace
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

NAME_COST_CHARACTERS = 100
"""To hash so many costs as much as another element."""
MOVE_COST = 50
"""Of a move that begins: it makes a directory and a segment, as a new partition does."""

Answers = dict[str, list[AlterReplicaLogDirPartitionResult]]
"""By topic."""


def build(services: Services) -> Handler:
    replica_manager = services.replica_manager

    def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> Any:
        return at_once_or_in_turns(_answer(request))

    def _answer(request: AlterReplicaLogDirsRequest) -> Work:
        moves = replica_manager.moves
        answers = Answers()
        pace = Pace()
        wanted = yield from _wanted(request)
        for (topic, index), path in wanted.items():
            code = moves.alter(topic, index, path)
            answers.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            if pace.is_due(MOVE_COST):
                yield
        return (yield from _response(answers))

    return handle


def error_response(request: AlterReplicaLogDirsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: AlterReplicaLogDirsRequest, error: KafkaError) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    answers = Answers()
    pace = Pace()
    for topic, index in (yield from _wanted(request)):
        answers.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code))
        if pace.is_due():
            yield
    return (yield from _response(answers))


def _wanted(request: AlterReplicaLogDirsRequest) -> Generator[None, None, dict[tuple[str, int], str]]:
    """The directory that each partition is to be in; where it is named twice the last one counts."""
    wanted: dict[tuple[str, int], str] = {}
    pace = Pace()
    for directory in request.dirs:
        if pace.is_due():
            yield
        for topic in directory.topics:
            if pace.is_due():
                yield
            for index in topic.partitions:
                wanted[topic.name, index] = directory.path
                if pace.is_due(1 + len(topic.name) // NAME_COST_CHARACTERS):
                    yield
    return wanted


def _response(answers: Answers) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    results: list[AlterReplicaLogDirTopicResult] = []
    pace = Pace()
    for topic, partitions in answers.items():
        results.append(AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions))
        if pace.is_due():
            yield
    return AlterReplicaLogDirsResponse(results=results)
