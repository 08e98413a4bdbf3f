"""AlterReplicaLogDirs (key 34). Serves v1–v2.

Behaviour:
- Each named replica of this broker begins to move to the log directory of that path. If it is there already, it stays, and a move to
another directory ends. The answer does not wait for the move: DescribeLogDirs shows the copy until it takes over.
- A partition without a replica here is REPLICA_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION. It will be created in that directory when this
broker gets a replica.
- INVALID_REPLICA_ASSIGNMENT for a log directory that is cordoned, also where the replica is in it (KIP-1066).
- LOG_DIR_NOT_FOUND for a path that is none of this broker's log directories; KAFKA_STORAGE_ERROR for one that is offline, for a replica
that is, and for every move to begin while any log directory is; INVALID_TOPIC_EXCEPTION if the copy's directory would have too long a name.
- If a partition is named twice, the last directory counts.

Version notes: v2 is flexible.

Source: kafka.server.ReplicaManager.alterReplicaLogDirs (KIP-113).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

MOVES_AT_ONCE = 10
"""Moves that begin before the request goes in turns: each makes a directory and a segment, as a new partition does."""

Answers = dict[str, AlterReplicaLogDirTopicResult]
"""By topic."""


def build(services: Services) -> Handler:
    replica_manager = services.replica_manager

    def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> Any:
        return at_once_or_in_turns(_answer(request), MOVES_AT_ONCE)

    def _answer(request: AlterReplicaLogDirsRequest) -> Work:
        moves = replica_manager.moves
        answers = Answers()
        for (topic, index), path in (yield from _wanted(request)).items():
            _add(answers, topic, index, moves.alter(topic, index, path))
            yield
        return AlterReplicaLogDirsResponse(results=list(answers.values()))

    return handle


def error_response(request: AlterReplicaLogDirsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_refused(request, error.code))


def _refused(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> Work:
    answers = Answers()
    for topic, index in (yield from _wanted(request)):
        _add(answers, topic, index, code)
        yield
    return AlterReplicaLogDirsResponse(results=list(answers.values()))


def _wanted(request: AlterReplicaLogDirsRequest) -> Work:
    """Returns the requested directory of each topic and partition; if it is named twice, the last one."""
    wanted: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[topic.name, index] = directory.path
                yield
    return wanted


def _add(answers: Answers, topic: str, index: int, code: ErrorCode) -> None:
    answer = answers.get(topic)
    if answer is None:
        answer = answers[topic] = AlterReplicaLogDirTopicResult(topic_name=topic, partitions=[])
    answer.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
