"""AlterReplicaLogDirs of very many partitions goes in turns. tests/broker/replication/moves/test_directory_moves.py has what it does."""

from __future__ import annotations

from broker.handlers.cluster import alter_replica_log_dirs
from broker.loop.turns import ELEMENTS_AT_ONCE
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.broker.replication.moves.moving import Moving
from tests.broker.replication.world import context
from tests.support.turns import run

KEY = 34
TOPICS = 5_000


def many_topics() -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=f"missing-{n}", partitions=[0]) for n in range(TOPICS)]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=topics)])


def test_a_request_of_very_many_partitions_goes_in_turns() -> None:
    handle = alter_replica_log_dirs.build(Moving().world.services())

    response, pieces_count = run(handle(context(KEY, 2), many_topics()))

    assert len(response.results) == TOPICS
    assert pieces_count >= 2 * TOPICS - alter_replica_log_dirs.MOVES_AT_ONCE  # each is noted, then begun


def test_so_does_its_refusal() -> None:
    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    response, pieces_count = run(alter_replica_log_dirs.error_response(many_topics(), error))

    assert pieces_count >= 2 * TOPICS - ELEMENTS_AT_ONCE
    assert {partition.error_code for topic in response.results for partition in topic.partitions} == {ErrorCode.REQUEST_TIMED_OUT}
