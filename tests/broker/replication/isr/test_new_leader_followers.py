"""A new leader's first records are acknowledged though its followers' Fetches are parked with it already.

A follower ends one long poll itself for a new partition; here it has just done so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.isr.new_leader_followers import AWAITED_MAX_MS, BRIEF_WAIT_MS
from protocol.errors import ErrorCode
from tests.broker.replication.cluster import Cluster

LONG_POLL_MS = 500


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Its followers' Fetches are parked with broker 1, anew since a moment."""
    cluster = Cluster(tmp_path)
    cluster.create_topic("a")
    cluster.create_topic("b", leader=2)
    cluster.settle()
    end_a_long_poll(cluster)
    return cluster


def end_a_long_poll(cluster: Cluster) -> None:
    cluster.create_topic("new")
    cluster.run()


def test_first_record_of_a_new_topic_waits_for_no_long_poll(cluster: Cluster) -> None:
    cluster.create_topic("c")

    answers = cluster.produce("c", "x")
    cluster.run()  # no time passes

    assert [answer.error_code for answer in answers] == [ErrorCode.NONE]


def test_new_leader_commits_what_the_one_before_left_without_a_long_poll(cluster: Cluster) -> None:
    cluster.produce("b", "x")
    cluster.run()

    cluster.change_leader("b", 1)
    cluster.run()

    log = cluster.nodes[1].log("b")
    assert (log.high_watermark, log.log_end_offset) == (1, 1)


def test_followers_that_hear_of_the_leader_later_are_asked_again_soon(cluster: Cluster) -> None:
    topic_id = cluster.controller.state.topics["b"].topic_id
    cluster.lead(topic_id, 1)
    cluster.nodes[1].hear()
    cluster.run()

    for node_id in (2, 3):
        cluster.nodes[node_id].hear()
    answers = cluster.produce("b", "x")
    cluster.advance(BRIEF_WAIT_MS)
    cluster.run()

    assert [answer.error_code for answer in answers] == [ErrorCode.NONE]


def test_follower_that_never_comes_is_awaited_for_a_while_only(cluster: Cluster) -> None:
    topic_id = cluster.controller.state.topics["b"].topic_id
    cluster.lead(topic_id, 1)
    cluster.nodes[1].hear()
    cluster.run()
    cluster.advance(AWAITED_MAX_MS)
    cluster.run()  # what was parked briefly is answered, and the followers fetch again

    cluster.advance(LONG_POLL_MS - 1)

    assert cluster.messages == []


def test_dead_follower_is_forgotten_with_its_partitions(cluster: Cluster) -> None:
    cluster.kill(3)  # the controller has not noticed
    cluster.create_topic("c")
    awaited = cluster.nodes[1].replica_manager.new_leader_followers
    assert 3 in awaited.by_follower
    cluster.run()

    cluster.advance(2 * AWAITED_MAX_MS)

    assert not awaited.by_follower
