"""Moves of replicas between brokers and log directories: start them, list those in progress, wait until they are done, cancel them
(KIP-455, KIP-113)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.cli.cluster_facts import replica_sizes
from barnabas.cli.connection import Connection
from barnabas.cli.errors import check
from barnabas.cli.progress import Bar
from barnabas.cli.reassignment.plan import Partition
from barnabas.cli.reassignment.plan_file import Directories
from barnabas.cli.report import Outcome
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

POLL_S = 0.5
FIRST_POLL_S = 0.05
"""Small partitions are moved at once."""


Sizes = Mapping[tuple[Partition, int], int]
"""Bytes on disk of the replica on that broker."""


class Move(NamedTuple):
    """A reassignment in progress. `replicas` has those that are added and those that will be removed."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]

    @property
    def target(self) -> list[int]:
        return [broker for broker in self.replicas if broker not in self.removing]


def in_progress(connection: Connection) -> dict[Partition, Move]:
    """Raises RefusedError."""
    answer = connection.wire().request(ListPartitionReassignmentsRequest(topics=None, timeout_ms=connection.timeout_ms))
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, each.partition_index): Move(each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in sorted(answer.topics, key=lambda topic: str(topic.name))
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    }


def start(connection: Connection, wished: Mapping[Partition, Sequence[int] | None], done: str) -> list[Outcome]:
    """None cancels a partition's move. `done` is what became of those that the controller takes. Raises RefusedError."""
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for (topic, index), replicas in wished.items():
        topics[topic].append(ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas)))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=connection.timeout_ms, topics=[ReassignableTopic(name=name, partitions=each) for name, each in topics.items()]
    )
    answer = connection.wire().request(request)
    check(answer.error_code, answer.error_message)
    outcomes = []
    for topic in answer.responses:
        for each in topic.partitions:
            outcomes.append(Outcome.of_wire(f"{topic.name}-{each.partition_index}", each.error_code, each.error_message, done))
    return outcomes


def place(connection: Connection, directories: Directories) -> None:
    """Let replicas be in these log directories. A replica that its broker has not made yet is asked for again. Raises RefusedError."""
    pending, deadline = dict(directories), time.monotonic() + connection.timeout_s
    while pending:
        for broker in {broker for _, broker in pending}:
            own = {each: path for (each, on), path in pending.items() if on == broker}
            for each, code in _place(connection, broker, own):
                if code == ErrorCode.NONE:
                    del pending[each, broker]
                elif code != ErrorCode.REPLICA_NOT_AVAILABLE or time.monotonic() > deadline:
                    check(code, of=f"{each[0]}-{each[1]} on broker {broker}: {own[each]}")
        time.sleep(FIRST_POLL_S if pending else 0)


def wait(connection: Connection, partitions: Iterable[Partition]) -> None:
    """Returns once no replica of these is moved between brokers any more; shows how much is copied, on a terminal. Raises CommandError."""
    asked = {*partitions}
    began = moving = {each: move for each, move in in_progress(connection).items() if each in asked}
    with Bar("copying", is_bytes=True) as bar:
        poll_s = FIRST_POLL_S
        while moving:
            if bar.is_shown:
                bar.show(*copied(all_sizes(connection), began, moving))
            time.sleep(poll_s)
            poll_s = min(poll_s * 2, POLL_S)
            moving = {each: move for each, move in in_progress(connection).items() if each in began}


def all_sizes(connection: Connection) -> Sizes:
    return replica_sizes(connection, connection.metadata().brokers)


def copied(sizes: Sizes, began: Mapping[Partition, Move], moving: Mapping[Partition, Move]) -> tuple[int, int]:
    """Bytes that new replicas have, and those that they will have, of all moves that began."""
    done = total = 0
    for each, move in began.items():
        whole = max((sizes.get((each, broker), 0) for broker in move.replicas), default=0)
        for broker in move.adding:
            total += whole
            done += min(sizes.get((each, broker), 0), whole) if each in moving else whole
    return done, total


def _place(connection: Connection, broker: int, own: Mapping[Partition, str]) -> Iterator[tuple[Partition, int]]:
    paths: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, index), path in own.items():
        paths[path][topic].append(index)
    dirs = [
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()])
        for path, topics in paths.items()
    ]
    for topic in connection.wire(broker).request(AlterReplicaLogDirsRequest(dirs=dirs)).results:
        for each in topic.partitions:
            yield (topic.topic_name, each.partition_index), each.error_code
