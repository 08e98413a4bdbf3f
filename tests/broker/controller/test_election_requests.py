"""What ElectLeaders answers, and whom it makes leader."""

from __future__ import annotations

import pytest

from broker.controller.election_requests import elect_leaders
from broker.metadata.image import NO_LEADER
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.broker.controller.cluster import SESSION_MS, Cluster
from tests.broker.controller.test_elections import ThreeBrokers, large

PREFERRED, UNCLEAN = 0, 1
RECOVERING = 1


def ask(cluster: Cluster, kind: int, *partitions: int, topic: str = "t") -> list[tuple[int, ErrorCode]]:
    """Elect leaders of some partitions of a topic; of all partitions there are if none is named."""
    named = [TopicPartitions(topic=topic, partitions=list(partitions))] if partitions else None
    controller = cluster.controller
    request = ElectLeadersRequest(election_type=kind, topic_partitions=named)
    response: ElectLeadersResponse = cluster.run(elect_leaders(controller.state, controller.elections, request))
    return [
        (each.partition_id, ErrorCode(each.error_code)) for result in response.replica_election_results for each in result.partition_result
    ]


def test_the_preferred_replica_is_elected() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, leader=3)

    answers = ask(cluster, PREFERRED, 0), ask(cluster, PREFERRED, 0)

    assert answers == ([(0, ErrorCode.NONE)], [(0, ErrorCode.ELECTION_NOT_NEEDED)])
    assert cluster.facts == (2, 1, (2, 3))


def test_a_preferred_replica_that_is_not_in_sync_cannot_be_elected() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(3,))

    assert ask(cluster, PREFERRED, 0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert cluster.facts == (3, 0, (3,))


def test_partitions_that_do_not_exist_are_unknown() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)

    assert ask(cluster, PREFERRED, 0, topic="u") == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert ask(cluster, PREFERRED, 1, -1) == [(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_an_unclean_election_is_for_partitions_without_a_leader_alone() -> None:
    """Whatever unclean.leader.election.enable says: an operator asks for it."""
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(2,))
    led = ask(cluster, UNCLEAN, 0)
    cluster.pass_time(SESSION_MS, 1, 3)
    leaderless = cluster.facts[0]

    elected = ask(cluster, UNCLEAN, 0)

    assert (led, leaderless, elected) == ([(0, ErrorCode.ELECTION_NOT_NEEDED)], NO_LEADER, [(0, ErrorCode.NONE)])
    assert cluster.facts == (3, 2, (3,)) and cluster.image.leader_recovery_state == RECOVERING


def test_nobody_can_be_elected_where_no_replica_is_alive() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2)
    cluster.pass_time(SESSION_MS, 1, 3)

    assert ask(cluster, UNCLEAN, 0) == [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]


def test_an_election_of_all_leaves_out_what_needs_none_and_goes_in_steps() -> None:
    cluster = ThreeBrokers()
    large(cluster, 300, [2, 3])

    answers = ask(cluster, PREFERRED)

    assert answers == [(index, ErrorCode.NONE) for index in range(1, 300, 2)]
    assert {image.leader for image in cluster.controller.state.topics["large-5"].partitions} == {2}


def test_a_partition_that_is_named_twice_is_elected_once() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, leader=3)

    ask(cluster, PREFERRED, 0, 0)

    assert cluster.facts == (2, 1, (2, 3))


def test_an_election_of_too_many_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        ask(ThreeBrokers(), PREFERRED, *range(20_000))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_an_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        ask(ThreeBrokers(), 2)

    assert refused.value.code is ErrorCode.INVALID_REQUEST
