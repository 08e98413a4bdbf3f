"""Three brokers with two log directories each, one of which fails: others lead what was led there, and its broker goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.metadata import MetadataResponsePartition
from tests.faults.test_full_disk import TOPIC, produce
from tests.support.cluster import Cluster
from tests.support.wire import WireClient

PARTITIONS = 6
TIMEOUT_MS = 500  # of a produce: until the directory is known to have failed its replicas acknowledge nothing
SETTINGS = {
    "log.flush.interval.messages": "1",
    # As in Kafka, a leader waits so long for a replica that just left the ISR before it acknowledges without it.
    "replica.lag.time.max.ms": "2000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {node_id: {"log.dirs": f"{tmp_path / f'{node_id}-a'},{tmp_path / f'{node_id}-b'}"} for node_id in (1, 2, 3)}
    with Cluster(tmp_path, settings=SETTINGS, node_settings=settings) as cluster:
        yield cluster


def partitions_of(cluster: Cluster) -> list[MetadataResponsePartition]:
    partitions: list[MetadataResponsePartition] = cluster.metadata(TOPIC).topics[0].partitions
    return partitions


def replicas_in(cluster: Cluster, node_id: int) -> dict[str, tuple[ErrorCode, set[int]]]:
    """By the log directory's path: its state, and the topic's partitions in it."""
    results = cluster.ask_node(node_id, DescribeLogDirsRequest(topics=None), 4).results
    return {
        each.log_dir: (
            ErrorCode(each.error_code),
            {partition.partition_index for topic in each.topics if topic.name == TOPIC for partition in topic.partitions},
        )
        for each in results
    }


def write_to_all(cluster: Cluster, acked: dict[int, int]) -> None:
    """A record to each partition, by its leader."""

    def write(index: int) -> bool:
        node = cluster.nodes[next(each.leader_id for each in partitions_of(cluster) if each.partition_index == index)]
        with WireClient(node.host, node.port) as client:
            return produce(client, index, acked, timeout_ms=TIMEOUT_MS) is ErrorCode.NONE

    for index in range(PARTITIONS):
        cluster.wait_for(lambda index=index: write(index), f"a write to partition {index}")  # type: ignore[misc]


def test_a_failed_directorys_partitions_are_led_by_others_and_its_broker_lives(cluster: Cluster, tmp_path: Path) -> None:
    failed = tmp_path / "2-b"
    acked: dict[int, int] = {}
    cluster.create_topic(TOPIC, PARTITIONS)
    write_to_all(cluster, acked)
    before = replicas_in(cluster, 2)
    lost = before[str(failed)][1]

    # Files that are replaced under a broker are found out by its next flush.
    failed.rename(tmp_path / "unplugged")
    failed.write_text("no directory")
    cluster.wait_for(lambda: _fails_by_writing(cluster, acked, failed), "the directory to be offline")
    cluster.wait_for(
        lambda: all((2 not in each.isr_nodes and each.leader_id != 2) == (each.partition_index in lost) for each in _settled(cluster)),
        "others to lead what was there, and nothing else to move",
    )
    write_to_all(cluster, acked)

    assert 0 < len(lost) < PARTITIONS
    assert cluster.running == (1, 2, 3)
    after = replicas_in(cluster, 2)
    assert after[str(failed)] == (ErrorCode.KAFKA_STORAGE_ERROR, set())
    assert after[str(tmp_path / "2-a")] == before[str(tmp_path / "2-a")]

    cluster.kill(2)
    failed.unlink()
    (tmp_path / "unplugged").rename(failed)
    cluster.start(2)
    cluster.wait_in_sync(TOPIC)
    assert replicas_in(cluster, 2) == before


def _fails_by_writing(cluster: Cluster, acked: dict[int, int], failed: Path) -> bool:
    for index in range(PARTITIONS):
        for node_id in (1, 2, 3):
            node = cluster.nodes[node_id]
            with WireClient(node.host, node.port) as client:
                produce(client, index, acked, timeout_ms=TIMEOUT_MS)
        if replicas_in(cluster, 2)[str(failed)][0] is ErrorCode.KAFKA_STORAGE_ERROR:
            return True
    return False


def _settled(cluster: Cluster) -> list[MetadataResponsePartition]:
    """The partitions, once each has a leader. LookupError before."""
    partitions = partitions_of(cluster)
    if any(each.leader_id < 0 for each in partitions):
        raise LookupError("a partition without a leader")
    return partitions
