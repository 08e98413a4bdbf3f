"""Three brokers, one of which has two log directories: its replicas move between them as leaders and as followers, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.faults.test_full_disk import TOPIC, count_records, produce
from tests.support.cluster import Cluster
from tests.support.wire import WireClient

PARTITIONS = 6
MOVER = 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {MOVER: {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}}
    with Cluster(tmp_path, settings={"log.flush.interval.messages": "1"}, node_settings=settings) as cluster:
        yield cluster


def places(cluster: Cluster) -> dict[int, list[tuple[str, bool]]]:
    """In which directories each partition is on the broker that has two, and whether as a copy."""
    found: dict[int, list[tuple[str, bool]]] = {}
    for each in cluster.ask_node(MOVER, DescribeLogDirsRequest(topics=None), 4).results:
        for topic in each.topics:
            for partition in topic.partitions if topic.name == TOPIC else ():
                found.setdefault(partition.partition_index, []).append((each.log_dir, partition.is_future_key))
    return found


def write_to_all(cluster: Cluster, acked: dict[int, int]) -> None:
    for partition in cluster.metadata(TOPIC).topics[0].partitions:
        node = cluster.nodes[partition.leader_id]
        with WireClient(node.host, node.port) as client:
            assert produce(client, partition.partition_index, acked) is ErrorCode.NONE


def readable(cluster: Cluster) -> dict[int, int]:
    """How many records each partition's leader has below its high watermark."""
    counts = {}
    for partition in cluster.metadata(TOPIC).topics[0].partitions:
        node = cluster.nodes[partition.leader_id]
        with WireClient(node.host, node.port) as client:
            counts[partition.partition_index] = count_records(client, partition.partition_index)
    return counts


def test_leaders_and_followers_move_and_stay_in_sync(cluster: Cluster, tmp_path: Path) -> None:
    acked: dict[int, int] = {}
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.wait_in_sync(TOPIC)
    for _ in range(20):
        write_to_all(cluster, acked)
    before = places(cluster)
    leaders = {each.partition_index: each.leader_id for each in cluster.metadata(TOPIC).topics[0].partitions}

    wanted = {index: str(tmp_path / ("b" if Path(found[0][0]).name == "a" else "a")) for index, found in before.items()}
    directories = [
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[index])]) for index, path in wanted.items()
    ]
    (answer,) = cluster.ask_node(MOVER, AlterReplicaLogDirsRequest(dirs=directories), 2).results
    assert {each.error_code for each in answer.partitions} == {ErrorCode.NONE}

    def have_moved() -> bool:
        write_to_all(cluster, acked)
        return places(cluster) == {index: [(path, False)] for index, path in wanted.items()}

    cluster.wait_for(have_moved, "the replicas to be in the other directory")
    write_to_all(cluster, acked)
    cluster.wait_in_sync(TOPIC)

    assert MOVER in leaders.values() and set(leaders.values()) != {MOVER}
    assert {each.partition_index: each.leader_id for each in cluster.metadata(TOPIC).topics[0].partitions} == leaders
    cluster.kill(MOVER)
    cluster.start(MOVER)
    cluster.wait_in_sync(TOPIC)
    assert places(cluster) == {index: [(path, False)] for index, path in wanted.items()}

    def can_all_be_read() -> bool:
        return readable(cluster) == acked

    # A new leader's high watermark is behind until its followers have fetched from it.
    cluster.wait_for(can_all_be_read, "the high watermarks to reach the end")
    assert readable(cluster) == acked
