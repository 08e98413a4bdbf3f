"""Three brokers replicate: records reach the followers, leaders die, logs that went apart become one again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.network.peer_requests import api_of
from broker.replication.partition import Partition
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.replication.cluster import ROUND_MS, Cluster, stored
from tests.broker.replication.world import batch

LAG_MAX_MS = 30_000


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", min_insync_replicas="2")
    return cluster


def values(cluster: Cluster, node_id: int, topic: str = "a") -> list[str]:
    return [record.value for record in stored(cluster.nodes[node_id].log(topic))]


def test_records_reach_the_followers_and_are_acknowledged_then(cluster: Cluster) -> None:
    cluster.run()
    answers = cluster.produce("a", "x", "y")
    assert answers == []

    cluster.settle()

    assert answers[0].error_code is ErrorCode.NONE
    for node_id in (1, 2, 3):
        log = cluster.nodes[node_id].log()
        assert (values(cluster, node_id), log.high_watermark, log.leader_epochs.latest_epoch) == (["x", "y"], 2, 0)


def test_records_appended_when_others_are_acknowledged_are_replicated_at_once(cluster: Cluster) -> None:
    """As a coordinator does: the append comes while the follower's fetch that acknowledges the first record is being handled."""
    cluster.run()
    second: list[list[Any]] = []
    leader = cluster.leader().replica_manager
    leader.append([("a", 0, batch("x"))], acks=-1, timeout_ms=60_000, on_done=lambda _: second.append(cluster.produce("a", "y")))

    cluster.run()  # no time passes: no long poll ends

    assert second[0][0].error_code is ErrorCode.NONE


def test_who_is_answered_from_inside_what_ends_the_wait(cluster: Cluster) -> None:
    """A follower, whose next fetch acknowledges, and a producer that waited for the followers; not a consumer, for whom the producer whose
    records it waits for would wait."""
    cluster.run()
    fetched = [FetchTopic(topic="a", partitions=[FetchPartition(partition=0, current_leader_epoch=0, partition_max_bytes=1_000)])]
    produced = [TopicProduceData(name="a", partition_data=[PartitionProduceData(index=0, records=batch("x"))])]
    apis = cluster.leader().apis

    def sends_at_once(request: Any, version: int) -> bool:
        facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        header = struct.pack(">hhih", api_of(request).key, version, 1, -1)
        assert isinstance(apis.handle(memoryview(bytearray(header + codec.encode(request, version))), facts), Deferred)
        return facts.sends_at_once

    assert sends_at_once(FetchRequest(replica_id=2, max_wait_ms=500, min_bytes=1, max_bytes=1_000, topics=fetched), 11)
    assert not sends_at_once(FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1_000, topics=fetched), 11)
    assert sends_at_once(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=produced), 7)


def test_a_follower_that_died_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    cluster.settle()
    cluster.kill(3)
    cluster.fence(3)
    while_away = cluster.produce("a", "x")
    cluster.settle()
    assert cluster.isr() == (1, 2)
    assert while_away[0].error_code is ErrorCode.NONE

    cluster.start(3)
    cluster.settle()

    assert cluster.isr() == (1, 2, 3)
    assert values(cluster, 3) == ["x"]


def test_a_silent_follower_is_dropped_after_the_lag_and_acks_go_on(cluster: Cluster) -> None:
    cluster.settle()
    cluster.kill(3)  # and the controller does not notice
    answers = cluster.produce("a", "x")
    cluster.settle()
    assert answers == []

    for _ in range(2 * LAG_MAX_MS // 500):
        cluster.advance(500)
        cluster.run()
    cluster.settle()

    assert cluster.isr() == (1, 2)
    assert answers[0].error_code is ErrorCode.NONE


def test_a_new_leader_has_what_was_acknowledged_and_the_old_one_cuts_what_was_not(cluster: Cluster) -> None:
    """The old leader's unacknowledged tail and the new leader's records are at the same offsets."""
    kept = cluster.produce("a", "kept")
    cluster.settle()
    cluster.nodes[1].hear()
    lost = cluster.produce("a", "lost-1", "lost-2", node=cluster.nodes[1])  # nobody has fetched it when the leader dies
    cluster.kill(1)
    cluster.fence(1)
    cluster.hear_all()
    assert cluster.leader().node_id == 2

    new = cluster.produce("a", "new")
    cluster.settle()
    cluster.start(1)
    cluster.settle()

    assert (kept[0].error_code, lost, new[0].error_code) == (ErrorCode.NONE, [], ErrorCode.NONE)
    for node_id in (1, 2, 3):
        assert stored(cluster.nodes[node_id].log()) == [(0, 0, "kept"), (1, 1, "new")]
    assert set(cluster.isr()) == {1, 2, 3}


def test_logs_of_several_epochs_that_went_apart_become_one(tmp_path: Path) -> None:
    """Each leader writes alone and dies, and another one follows uncleanly: the followers cut step by step (KIP-279)."""
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", replicas=(1, 2))
    cluster.produce("a", "common")
    cluster.settle()
    for turn, node_id in enumerate((1, 2, 1, 2)):
        other = 3 - node_id
        if not cluster.nodes[other].is_dead:
            cluster.kill(other)
        if cluster.nodes[node_id].is_dead:
            cluster.start(node_id)
        cluster.fence(other, is_unclean=True)
        cluster.elect(is_unclean=True)
        cluster.hear_all()
        assert cluster.leader().node_id == node_id
        cluster.produce("a", *(f"{turn}-{number}" for number in range(turn + 1)), acks=1)
        cluster.run()

    cluster.start(1)
    cluster.settle(10)

    assert stored(cluster.nodes[1].log()) == stored(cluster.nodes[2].log())
    assert values(cluster, 2) == ["common", "1-0", "1-1", "3-0", "3-1", "3-2", "3-3"]
    assert cluster.nodes[1].log().leader_epochs.entries() == cluster.nodes[2].log().leader_epochs.entries()


def test_a_follower_before_the_leader_s_start_begins_anew_there(cluster: Cluster) -> None:
    cluster.produce("a", "x", "y")
    cluster.settle()
    cluster.kill(3)
    cluster.fence(3)
    cluster.produce("a", "z")
    cluster.settle()
    for node_id in (1, 2):
        cluster.nodes[node_id].log().set_log_start_offset(3)

    cluster.start(3)
    cluster.settle(12)
    cluster.produce("a", "after")
    cluster.settle()

    log = cluster.nodes[3].log()
    assert (log.log_start_offset, log.log_end_offset, values(cluster, 3)) == (3, 4, ["after"])
    assert set(cluster.isr()) == {1, 2, 3}


def test_a_log_that_ends_in_an_empty_segment_has_followers_in_sync(cluster: Cluster) -> None:
    """A power cut left it so: it ends at offset 4, and has no record below that."""
    cluster.settle()
    directory = cluster.nodes[1].log().directory
    for node_id in (2, 3, 1):
        cluster.kill(node_id)
        cluster.fence(node_id)
    (directory / "00000000000000000004.log").touch()

    for node_id in (1, 2, 3):
        cluster.start(node_id)
        cluster.settle(12)
    assert cluster.leader().node_id == 1
    assert set(cluster.isr()) == {1, 2, 3}
    answers = cluster.produce("a", "x")
    cluster.settle()

    assert (answers[0].error_code, answers[0].base_offset) == (ErrorCode.NONE, 4)
    assert [values(cluster, node_id) for node_id in (1, 2, 3)] == [["x"]] * 3


def test_a_partition_with_flush_messages_1_is_acknowledged_when_it_is_durable_on_the_followers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", flush_messages="1", min_insync_replicas="3")
    cluster.settle()
    answers = cluster.produce("a", "x")
    for _ in range(20):  # everything arrives, and no disk is waited for on broker 3
        cluster.advance(10)
        for node_id in (1, 2):
            cluster.nodes[node_id].executor.run()
        while cluster.messages:
            cluster.deliver(cluster.messages[0])
    assert (values(cluster, 3), answers) == (["x"], [])
    assert cluster.nodes[3].log().durable_end_offset == 0

    cluster.settle()

    assert answers[0].error_code is ErrorCode.NONE
    assert [cluster.nodes[node_id].log().durable_end_offset for node_id in (1, 2, 3)] == [1, 1, 1]


def test_a_follower_with_flush_messages_1_makes_durable_what_it_finds_at_its_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", flush_messages="1")
    cluster.produce("a", "x")
    cluster.settle()
    cluster.kill(3)

    cluster.start(3)
    assert cluster.nodes[3].log().durable_end_offset == 0
    cluster.settle()

    assert cluster.nodes[3].log().durable_end_offset == 1
    assert set(cluster.isr()) == {1, 2, 3}


def test_a_lost_answer_is_asked_for_again_after_the_back_off(cluster: Cluster) -> None:
    cluster.settle()
    answers = cluster.produce("a", "x")
    for message in tuple(cluster.messages):
        cluster.lose(message)
    cluster.run()
    assert answers == []

    cluster.advance(1_000)
    cluster.run()
    cluster.settle()

    assert answers[0].error_code is ErrorCode.NONE


def test_a_new_partition_does_not_wait_for_the_end_of_a_long_poll(cluster: Cluster) -> None:
    """After a leader's death its partitions come to fetchers that poll another leader."""
    cluster.settle()
    cluster.advance(ROUND_MS)
    cluster.run()

    cluster.create_topic("b", min_insync_replicas="3")
    cluster.run()
    answers = cluster.produce("b", "x")
    cluster.run()

    assert answers[0].error_code is ErrorCode.NONE


@pytest.mark.parametrize("checks_epochs", [True, False])
def test_a_fetch_of_an_older_leader_epoch_proves_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, checks_epochs: bool) -> None:
    """The follower may have cut its log since. Without the check the leader takes the old fetch for progress."""
    cluster.settle()
    cluster.produce("a", "x", acks=1)
    cluster.run_until(
        lambda: any(each.sender.node_id == 2 and each.is_request for each in cluster.messages) and values(cluster, 2) == ["x"]
    )
    (old_fetch,) = [each for each in cluster.messages if each.sender.node_id == 2 and each.is_request]
    cluster.messages.remove(old_fetch)
    for leader_id in (3, 1):
        cluster.change_leader("a", leader_id)
    if not checks_epochs:
        monkeypatch.setattr(Partition, "check_leader_epoch", lambda self, current_leader_epoch: None)

    old_fetch.arrive()

    assert cluster.nodes[1].partition().followers[2].log_end_offset == (-1 if checks_epochs else 1)


def test_a_leader_with_flush_messages_1_makes_durable_what_it_finds_at_its_start(tmp_path: Path) -> None:
    """Else nothing of it would be committed before the next append."""
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", replicas=(1,), flush_messages="1")
    cluster.produce("a", "x")
    cluster.settle()
    cluster.kill(1)

    cluster.start(1)
    cluster.elect()
    cluster.settle()

    assert (cluster.nodes[1].log().durable_end_offset, cluster.nodes[1].log().high_watermark) == (1, 1)


def test_a_follower_with_flush_messages_1_that_is_elected_makes_durable_what_it_has(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", flush_messages="1", min_insync_replicas="1")
    cluster.settle()
    cluster.produce("a", "x")
    for _ in range(3):  # the followers append it, and broker 2 writes nothing to its disk
        cluster.advance(0)
        cluster.nodes[1].executor.run()
        while cluster.messages:
            cluster.deliver(cluster.messages[0])
    assert (values(cluster, 2), cluster.nodes[2].log().durable_end_offset) == (["x"], 0)
    cluster.nodes[2].executor.pending.clear()  # it dies before its disk has answered, and comes back
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    cluster.start(2)
    for node_id in (1, 3):
        cluster.fence(node_id)
    cluster.elect(is_unclean=True)
    cluster.settle()

    assert cluster.leader().node_id == 2
    assert (cluster.nodes[2].log().durable_end_offset, cluster.nodes[2].log().high_watermark) == (1, 1)
