"""What an operator reads of the controller's decisions, and that thousands at once are a few lines."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker.controller.decision_log import DecisionLog
from broker.controller.election_requests import elect_leaders
from broker.metadata.image import RECOVERING
from broker.observability.limited_log import PARTITION_LINES_INTERVAL_MS, PARTITION_LINES_MAX
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.stored.metadata_records import PartitionChangeRecord
from tests.broker.controller.cluster import SESSION_MS, TOPIC_ID, directory
from tests.broker.controller.test_elections import large
from tests.broker.controller.test_reassignments import FiveBrokers
from tests.support.clock import ManualClock

PARTITIONS = 1_000


class ToldCluster(FiveBrokers):
    """A DecisionLog is told of each batch before it is replayed, as LocalController does."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = DecisionLog(self.clock)
        super().__init__()

    def append(self, records: list[Any]) -> None:
        self.log.note(records, self.controller.state, self.controller.elections)
        super().append(records)


@pytest.fixture
def cluster(caplog: pytest.LogCaptureFixture) -> ToldCluster:
    caplog.set_level(logging.INFO, logger="barnabas.controller")
    cluster = ToldCluster()
    caplog.clear()
    return cluster


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of the lines since the last look."""
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return lines


def test_election_is_told_with_its_reason(cluster: ToldCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.partition(2, 3, 4)

    cluster.pass_time(SESSION_MS + 1_000, 1, 3, 4, 5)
    assert told(caplog) == [
        ("INFO", "elected broker 3 for t-0 in epoch 1, ISR [3, 4]: broker 2 is fenced"),
        ("INFO", "broker 2 is fenced"),
    ]

    cluster.heartbeat(3, want_shut_down=True)
    assert ("INFO", "elected broker 4 for t-0 in epoch 2, ISR [4]: broker 3 is about to stop") in told(caplog)

    cluster.join(2)
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[4, 2])])
    told(caplog)
    cluster.run(elect_leaders(cluster.controller.state, cluster.controller.elections, ElectLeadersRequest(topic_partitions=None)))
    assert told(caplog) == [("INFO", "elected broker 2 for t-0 in epoch 3, ISR [4, 2]: it is the preferred leader")]


def test_election_of_an_eligible_leader_replica_is_told(cluster: ToldCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.enable_elr()
    cluster.configure("", min_insync_replicas="2")
    cluster.partition(2, 3)
    cluster.pass_time(SESSION_MS, 1, 3, 4, 5)
    cluster.pass_time(SESSION_MS, 1, 4, 5)
    told(caplog)

    cluster.register(2, incarnation=7, previous_broker_epoch=cluster.epochs[2])  # it stopped orderly
    cluster.heartbeat(2)

    assert ("INFO", "elected eligible leader replica 2 for t-0 in epoch 3, ISR [2]: it had no leader") in told(caplog)


def test_leader_whose_log_directory_fails_is_told_from_a_preferred_one_that_comes_back(
    cluster: ToldCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.partition(2, 5, leader=5, directories=[directory(2), directory(6)])

    cluster.heartbeat(5, offline_log_dirs=[directory(6)])

    assert ("INFO", "elected broker 2 for t-0 in epoch 1, ISR [2]: broker 5 cannot lead it any more") in told(caplog)


def test_partition_that_loses_its_leader_and_gets_an_unclean_one_is_a_warning(
    cluster: ToldCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.partition(2, 3, isr=(2,))

    cluster.pass_time(SESSION_MS + 1_000, 1, 3, 4, 5)
    assert ("WARNING", "t-0 has no leader in epoch 1, ISR [2]: broker 2 is fenced") in told(caplog)

    cluster.configure(unclean_leader_election_enable="true")
    cluster.run(cluster.controller.elections.elect_unclean())
    assert cluster.image.leader_recovery_state == RECOVERING
    assert told(caplog) == [("WARNING", "unclean election of broker 3 for t-0 in epoch 2, ISR was [2]: acknowledged records may be lost")]


def test_brokers_that_come_and_go_are_told(cluster: ToldCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.register(7)
    epoch = cluster.epochs[7]
    cluster.heartbeat(7)
    cluster.run(cluster.controller.brokers.unregister(7))

    assert told(caplog) == [
        ("INFO", f"broker 7 registered in epoch {epoch}"),
        ("INFO", "broker 7 is unfenced"),
        ("INFO", "broker 7 is unregistered"),
    ]


def test_reassignment_is_told_from_its_begin_to_its_end(cluster: ToldCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.partition(1, 2)

    cluster.move(3, 2)
    assert told(caplog) == [("INFO", "reassignment of t-0 begins: adding [3], removing [1], replicas [3, 2, 1]")]
    cluster.move(cancel=True)
    assert told(caplog) == [("INFO", "reassignment of t-0 is cancelled: replicas [2, 1]")]

    cluster.move(3, 2)
    told(caplog)
    cluster.propose(1, 2, 3)
    assert told(caplog) == [
        ("INFO", "elected broker 3 for t-0 in epoch 2, ISR [2, 3]: its replica on broker 1 is removed"),
        ("INFO", "reassignment of t-0 is complete: replicas [3, 2]"),
    ]


def test_a_thousand_elections_are_a_few_lines_and_a_count(cluster: ToldCluster, caplog: pytest.LogCaptureFixture) -> None:
    large(cluster, PARTITIONS, [2, 3])
    told(caplog)

    cluster.run(cluster.controller.brokers.fence(2))
    cluster.clock.advance(PARTITION_LINES_INTERVAL_MS)

    lines = [text for _, text in told(caplog)]
    elections = [text for text in lines if text.startswith("elected")]
    assert len(elections) == PARTITION_LINES_MAX
    assert f"elections: {PARTITIONS // 2 - PARTITION_LINES_MAX} more lines were left out in the last 10 s" in lines
    assert "broker 2 is fenced" in lines
