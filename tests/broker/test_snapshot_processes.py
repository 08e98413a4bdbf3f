"""Nodes that lack too much of the metadata log catch up from a snapshot (FetchSnapshot), also if they are killed over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.quorum.snapshot_files import PART_SUFFIX
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.support.cluster import topics_of
from tests.support.quorum import DynamicQuorum, QuorumNode, dynamic_quorum, until

FETCHING = "fetching the snapshot"
TOPICS_PER_REQUEST = 50
CONFIGS = {"retention.ms": "3600000", "segment.bytes": "1048576", "cleanup.policy": "compact", "segment.ms": "1000000"}
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "10000", "metadata.max.retention.bytes": "20000"}


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamicQuorum]:
    roles = {1: "broker,controller", 2: "controller", 3: "controller"}
    with dynamic_quorum(tmp_path_factory.mktemp("quorum"), roles, SETTINGS) as made:
        yield made


def create_topics(quorum: DynamicQuorum, prefix: str, count: int) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    for start in range(0, count, TOPICS_PER_REQUEST):
        topics = [
            CreatableTopic(name=f"{prefix}{number}", num_partitions=1, replication_factor=1, configs=configs)
            for number in range(start, start + TOPICS_PER_REQUEST)
        ]
        response = quorum.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        assert {result.error_code for result in response.topics} == {0}


def said(node: QuorumNode, text: str) -> bool:
    """Since its last launch."""
    return text in node.log_path.read_text()[node.log_start :]


def test_a_broker_with_an_empty_disk_catches_up_though_it_is_killed_over_it(quorum: DynamicQuorum) -> None:
    create_topics(quorum, "a", 200)
    newcomer = quorum.add(4, "broker")
    fetches = 0

    for _ in range(4):
        newcomer.launch()
        until(lambda: said(newcomer, FETCHING) or newcomer.serves(), "it has heard of the leader")
        fetches += said(newcomer, FETCHING)
        newcomer.kill()
    newcomer.start()

    assert fetches > 0
    assert topics_of(newcomer) == topics_of(quorum.nodes[1]) >= {f"a{number}" for number in range(200)}
    assert not list((newcomer.data_dir / "__cluster_metadata-0").glob(f"*{PART_SUFFIX}"))
    assert newcomer.stop() == 0


def test_a_voter_that_is_far_behind_catches_up(quorum: DynamicQuorum) -> None:
    behind = quorum.nodes[3]
    behind.stop()
    create_topics(quorum, "b", 300)

    behind.start()

    def end_offsets() -> set[int]:
        return {voter.log_end_offset for voter in quorum.describe().current_voters}

    until(lambda: len(end_offsets()) == 1, "it has everything")
    assert said(behind, FETCHING)
    directory = behind.data_dir / "__cluster_metadata-0"
    until(lambda: min(int(path.name[:20]) for path in directory.glob("*.log")) > 0, "the log begins with the snapshot")
    until(lambda: len(list(directory.glob("*.checkpoint"))) <= 2, "snapshots before it are gone")
