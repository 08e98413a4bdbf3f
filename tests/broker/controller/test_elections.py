"""Who leads when brokers come, go, stop or lose their machine's power, as Kafka's ReplicationControlManager has it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.elections import CHANGES_AT_ONCE
from broker.metadata.image import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.stored.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.broker.controller.cluster import SESSION_MS, TOPIC_ID, Cluster, collected, directory
from tests.broker.metadata.room import creation

RECOVERED, RECOVERING = 0, 1


class ThreeBrokers(Cluster):
    """Brokers 1, 2 and 3, where 1 is in the controller's process."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.join(1, 2, 3)

    def restart(self, node_id: int, *, is_clean: bool = False) -> None:
        """Another incarnation registers, at once after the end of the first one's session."""
        self.now_ms += SESSION_MS
        self.register(node_id, incarnation=7, previous_broker_epoch=self.epochs[node_id] if is_clean else -1)


def large(cluster: Cluster, count: int, replicas: list[int], *, number: int = 5) -> None:
    """A topic of many partitions."""
    topic_id = number.to_bytes(16)
    cluster.append([TopicRecord(name=f"large-{number}", topic_id=topic_id)])
    for index in range(count):
        leader = replicas[index % len(replicas)]
        record = PartitionRecord(partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=leader, leader_epoch=0)
        record.directories = [directory(each) for each in replicas]
        cluster.append([record])


# -- the only broker there is --


def test_a_restarted_only_broker_leads_in_a_new_epoch() -> None:
    """KIP-320: consumers tell by it that records may have been lost."""
    cluster = Cluster()
    cluster.join(1)
    cluster.partition(1)
    cluster.make_controller(state=cluster.controller.state)

    cluster.register(1, incarnation=7)
    fenced = cluster.facts
    cluster.heartbeat(1)

    assert (fenced, cluster.facts) == ((1, 0, (1,)), (1, 1, (1,)))


def test_a_leaderless_partition_is_led_by_its_isr_member() -> None:
    """Kafka's clean stop leaves no leader."""
    cluster = Cluster()
    cluster.register(1)
    cluster.partition(1, leader=NO_LEADER)

    cluster.heartbeat(1)

    assert cluster.facts == (1, 1, (1,))


@pytest.mark.parametrize("place", ["eligible_leader_replicas", "last_known_elr"])
def test_the_last_member_that_left_the_isr_comes_back(place: str) -> None:
    """KIP-966."""
    cluster = Cluster()
    cluster.enable_elr()
    cluster.register(1)
    cluster.partition(1, 2, isr=(), leader=NO_LEADER, **{place: [1]})

    cluster.heartbeat(1)

    assert (cluster.facts, cluster.image.eligible_leader_replicas, cluster.image.last_known_elr) == ((1, 1, (1,)), (), ())


def test_a_single_replica_has_recovered_by_being_elected() -> None:
    cluster = Cluster()
    cluster.register(1)
    cluster.partition(1, leader_recovery_state=RECOVERING)

    cluster.heartbeat(1)

    assert cluster.image.leader_recovery_state == RECOVERED


# -- several --


def test_a_partition_of_another_live_leader_is_left_alone() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(2,))

    cluster.restart(3)
    cluster.heartbeat(3)

    assert cluster.facts == (2, 0, (2,))


def test_nobody_leads_what_a_fenced_broker_alone_has() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(2,))

    cluster.pass_time(SESSION_MS, 3)

    assert cluster.facts == (NO_LEADER, 1, (2,))


def test_other_brokers_of_an_older_log_are_fenced_and_leave_the_isr() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 1)

    cluster.run(cluster.controller.brokers.fence_others(1))

    assert [cluster.is_fenced(node_id) for node_id in (1, 2, 3)] == [False, True, True]
    assert cluster.facts == (1, 1, (1,))


def test_a_restart_with_nobody_to_take_over_leaves_the_partition_without_a_leader_until_it_is_unfenced() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(2,))

    cluster.restart(2)
    fenced = cluster.facts
    cluster.heartbeat(2)

    assert (fenced, cluster.facts) == ((NO_LEADER, 1, (2,)), (2, 2, (2,)))


def test_a_fenced_broker_that_wants_to_be_fenced_stays_so() -> None:
    cluster = ThreeBrokers()
    cluster.restart(2)

    answer = cluster.heartbeat(2, want_fence=True)
    stopping = cluster.heartbeat(2, want_shut_down=True)

    assert answer.is_fenced and not answer.should_shut_down and cluster.is_fenced(2)
    assert stopping.should_shut_down and cluster.is_fenced(2)


def test_an_unfenced_broker_may_ask_to_be_fenced() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)

    answer = cluster.heartbeat(2, want_fence=True)

    assert answer.is_fenced and not answer.should_shut_down
    assert cluster.is_fenced(2) and cluster.facts == (3, 1, (3,))


def test_new_partitions_lead_where_brokers_are_active() -> None:
    cluster = ThreeBrokers()
    cluster.pass_time(SESSION_MS, 1, 3)

    result = collected(cluster.controller.topics.create_topics(creation("t", 12, 3)))
    cluster.append(result.records)

    partitions = cluster.controller.state.topics["t"].partitions
    assert {len(image.replicas) for image in partitions} == {3}
    assert {frozenset(image.isr) for image in partitions} == {frozenset({1, 3})}
    assert {image.leader for image in partitions} == {1, 3}


def test_a_new_controller_fences_nobody_and_gives_each_a_new_session() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)
    cluster.now_ms += 100 * SESSION_MS  # of another controller's time
    cluster.make_controller(state=cluster.controller.state)

    cluster.pass_time(SESSION_MS - 1_000, 2)
    before = [cluster.is_fenced(node_id) for node_id in (1, 2, 3)]
    cluster.pass_time(1_000, 2)

    assert before == [False, False, False]
    assert [cluster.is_fenced(node_id) for node_id in (1, 2, 3)] == [False, False, True]


# -- controlled shutdown --


def test_a_broker_that_leads_nothing_may_go_at_once_and_leaves_the_isrs() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)

    answer = cluster.heartbeat(3, want_shut_down=True)

    assert answer.should_shut_down and answer.is_fenced
    assert cluster.is_fenced(3) and cluster.facts == (2, 0, (2,))


def test_a_broker_that_shuts_down_gets_no_new_replicas() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)
    cluster.heartbeat(2, want_shut_down=True)

    cluster.append(collected(cluster.controller.topics.create_topics(creation("u", 4, 2))).records)
    too_many = collected(cluster.controller.topics.create_topics(creation("v", 1, 3))).response.topics[0]

    assert all(set(image.replicas) == {1, 3} for image in cluster.controller.state.topics["u"].partitions)
    assert too_many.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_controlled_shutdown_ends_only_when_every_active_broker_knows() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)

    asked = cluster.heartbeat(2, want_shut_down=True)
    cluster.heartbeat(3)
    nearly = cluster.heartbeat(2, want_shut_down=True)
    cluster.heartbeat(1)
    granted = cluster.heartbeat(2, want_shut_down=True)

    assert [each.should_shut_down for each in (asked, nearly, granted)] == [False, False, True]


def test_a_controlled_shutdown_goes_on_under_a_new_controller() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3)
    cluster.heartbeat(2, want_shut_down=True)
    cluster.make_controller(state=cluster.controller.state)

    answer = cluster.heartbeat(2, want_shut_down=True)

    assert answer.should_shut_down and cluster.is_fenced(2)


def test_what_only_a_stopping_broker_has_is_led_by_nobody() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2)

    cluster.heartbeat(2, want_shut_down=True)

    assert cluster.facts == (NO_LEADER, 1, (2,))


# -- log directories --


def assign(cluster: Cluster, node_id: int, target: bytes) -> None:
    topics = [
        AssignReplicasToDirsRequestTopicData(topic_id=TOPIC_ID, partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=0)])
    ]
    directories = [AssignReplicasToDirsRequestDirectoryData(id=target, topics=topics)]
    request = AssignReplicasToDirsRequest(broker_id=node_id, broker_epoch=cluster.epochs[node_id], directories=directories)
    cluster.append(cluster.controller.brokers.assign_replicas(request).records)


@pytest.mark.parametrize("known", [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, bytes(15) + b"\xee", directory(1)])
def test_a_replica_that_is_found_is_led_and_its_directory_noted(known: bytes) -> None:
    cluster = Cluster()
    cluster.register(1)
    cluster.partition(1, directories=[known], leader=NO_LEADER)
    assign(cluster, 1, directory(1))

    cluster.heartbeat(1)

    assert (cluster.image.leader, cluster.image.directories) == (1, (directory(1),))


@pytest.mark.parametrize("known", [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, bytes(15) + b"\xee"])
def test_a_replica_in_a_directory_that_is_offline_has_no_leader(known: bytes) -> None:
    cluster = Cluster()
    cluster.register(1)
    cluster.partition(1, directories=[known])
    assign(cluster, 1, LOST_DIRECTORY)

    cluster.heartbeat(1)

    assert (cluster.image.leader, cluster.image.isr, cluster.image.directories) == (NO_LEADER, (1,), (LOST_DIRECTORY,))


@pytest.mark.parametrize("known", [directory(1), UNASSIGNED_DIRECTORY])
def test_a_replica_that_was_never_made_is_led(known: bytes) -> None:
    cluster = Cluster()
    cluster.register(1)
    cluster.partition(1, directories=[known])

    cluster.heartbeat(1)

    assert (cluster.image.leader, cluster.image.directories) == (1, (known,))


def test_a_failed_directory_gives_its_leaderships_to_others_and_its_replicas_leave_the_isr() -> None:
    cluster = ThreeBrokers()
    cluster.register(2, log_dirs=[directory(2), directory(9)])
    cluster.partition(2, 3, directories=[directory(9), directory(3)])

    cluster.heartbeat(2, offline_log_dirs=[directory(9)])

    assert cluster.facts == (3, 1, (3,)) and not cluster.is_fenced(2)
    assert cluster.controller.state.brokers[2].log_dirs == (directory(2),)


def test_a_replica_in_a_failed_directory_is_not_elected() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, directories=[directory(2), LOST_DIRECTORY])

    cluster.pass_time(SESSION_MS, 1, 3)

    assert cluster.facts == (NO_LEADER, 1, (3,))


# -- an unclean stop, with eligible leader replicas (KIP-966) --


def elr_cluster(min_isr: str = "2") -> ThreeBrokers:
    cluster = ThreeBrokers()
    cluster.enable_elr()
    cluster.configure("", min_insync_replicas=min_isr)
    return cluster


def test_who_leaves_an_isr_below_its_minimum_is_eligible_and_leads_when_nobody_else_can() -> None:
    cluster = elr_cluster()
    cluster.partition(2, 3)

    cluster.pass_time(SESSION_MS, 1, 3)
    one_left = cluster.facts, cluster.image.eligible_leader_replicas
    cluster.pass_time(SESSION_MS, 1)
    nobody_left = cluster.facts, set(cluster.image.eligible_leader_replicas), cluster.image.last_known_elr
    cluster.restart(2, is_clean=True)
    cluster.heartbeat(2)

    assert one_left == ((3, 1, (3,)), (2,))
    assert nobody_left == ((NO_LEADER, 2, ()), {2, 3}, (3,))
    assert (cluster.facts, cluster.image.eligible_leader_replicas) == ((2, 3, (2,)), (3,))
    assert cluster.image.leader_recovery_state == RECOVERED


def test_who_comes_back_from_an_unclean_stop_is_not_eligible() -> None:
    cluster = elr_cluster()
    cluster.partition(2, 3)
    cluster.pass_time(SESSION_MS, 1)

    cluster.restart(2)
    cluster.heartbeat(2)

    assert cluster.facts == (NO_LEADER, 2, ())
    assert cluster.image.eligible_leader_replicas == (3,)


def test_the_last_known_leader_is_elected_uncleanly_when_all_have_lost_their_power() -> None:
    cluster = elr_cluster()
    cluster.partition(2, 3, isr=(2,))
    cluster.pass_time(SESSION_MS, 1)

    cluster.restart(2)
    gone = cluster.image.eligible_leader_replicas, cluster.image.last_known_elr
    cluster.heartbeat(2)

    assert gone == ((), (2,))
    assert cluster.facts[0] == 2 and cluster.facts[2] == (2,)
    assert cluster.image.leader_recovery_state == RECOVERING and cluster.image.last_known_elr == ()


def test_without_the_feature_an_unclean_stop_is_as_a_clean_one() -> None:
    cluster = ThreeBrokers()
    cluster.configure("", min_insync_replicas="2")
    cluster.partition(2, 3, isr=(2,))

    cluster.restart(2)
    cluster.heartbeat(2)

    assert cluster.facts == (2, 2, (2,)) and cluster.image.eligible_leader_replicas == ()


# -- unclean elections --


def test_any_live_replica_leads_where_unclean_elections_are_allowed() -> None:
    cluster = ThreeBrokers()
    cluster.configure(unclean_leader_election_enable="true")
    cluster.partition(2, 3, isr=(2,))

    cluster.pass_time(SESSION_MS, 1, 3)

    assert cluster.facts == (3, 1, (3,)) and cluster.image.leader_recovery_state == RECOVERING


@pytest.mark.parametrize(("broker_default", "own", "leader"), [(True, None, 3), (True, "false", NO_LEADER), (False, None, NO_LEADER)])
def test_the_brokers_default_holds_where_the_topic_says_nothing(broker_default: bool, own: str | None, leader: int) -> None:
    cluster = ThreeBrokers(unclean_leader_election_enable=broker_default)
    cluster.partition(2, 3, isr=(2,))
    if own is not None:
        cluster.configure(unclean_leader_election_enable=own)

    cluster.pass_time(SESSION_MS, 1, 3)

    assert cluster.facts[0] == leader


def test_leaderless_partitions_are_elected_uncleanly_once_that_is_allowed() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(2,))
    cluster.pass_time(SESSION_MS, 1, 3)
    cluster.run(cluster.controller.elections.elect_unclean())
    refused = cluster.facts

    cluster.configure(unclean_leader_election_enable="true")
    cluster.run(cluster.controller.elections.elect_unclean())

    assert (refused, cluster.facts) == ((NO_LEADER, 1, (2,)), (3, 2, (3,)))


# -- the balance of leaders --


def test_preferred_replicas_lead_again_once_they_are_in_the_isr() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(3,), leader=3)
    cluster.run(cluster.controller.elections.balance())
    before = cluster.facts
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[3, 2])])

    cluster.run(cluster.controller.elections.balance())

    assert (before, cluster.facts) == ((3, 0, (3,)), (2, 1, (3, 2)))
    assert list(cluster.controller.elections.partitions.imbalanced()) == []


# -- leaving for good --


def test_a_broker_that_is_unregistered_leads_nothing_and_is_eligible_nowhere() -> None:
    cluster = elr_cluster()
    cluster.partition(2, 3, isr=(2,), eligible_leader_replicas=[3])

    cluster.run(cluster.controller.brokers.unregister(3))
    eligible = cluster.image.eligible_leader_replicas
    cluster.run(cluster.controller.brokers.unregister(2))

    assert eligible == () and set(cluster.controller.state.brokers) == {1}
    assert cluster.facts == (NO_LEADER, 1, ())


def test_a_broker_that_is_not_registered_cannot_be_unregistered() -> None:
    cluster = ThreeBrokers()

    with pytest.raises(KafkaError) as refused:
        cluster.run(cluster.controller.brokers.unregister(9))

    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# -- many partitions --


def test_the_fencing_of_a_broker_with_many_partitions_goes_in_steps_and_ends_with_the_broker() -> None:
    """What comes last is the fencing: a controller that dies in the middle leaves a broker that its successor fences again."""
    cluster = ThreeBrokers()
    large(cluster, 1_000, [2, 3])

    steps = [list(records) for records in collect(cluster, cluster.controller.brokers.fence(2))]

    kinds = [type(record) for records in steps for record in records]
    assert kinds.count(PartitionChangeRecord) == 1_000 and kinds[-1] is BrokerRegistrationChangeRecord
    assert max(map(len, steps)) <= CHANGES_AT_ONCE + 1 and kinds.index(BrokerRegistrationChangeRecord) == 1_000
    led_first = [record for records in steps for record in records if isinstance(record, PartitionChangeRecord)][:500]
    assert all(record.leader == 3 for record in led_first)
    assert all((image.leader, image.isr) == (3, (3,)) for image in cluster.controller.state.topics["large-5"].partitions)


def test_nothing_is_given_to_a_broker_whose_fencing_has_begun() -> None:
    cluster = ThreeBrokers()
    large(cluster, 1_000, [2, 3])
    cluster.partition(3, 2, isr=(3,))
    fencing = cluster.controller.brokers.fence(2)
    cluster.append(list(next(fencing)))

    answer = cluster.heartbeat(2)
    cluster.append(collected(cluster.controller.topics.create_topics(creation("u", 3, 3))).records)
    isrs = [image.isr for image in cluster.controller.state.topics["u"].partitions]
    cluster.run(fencing)

    assert answer.is_fenced and not cluster.is_fenced(1) and cluster.is_fenced(2)
    assert all(2 not in isr for isr in isrs)


def test_a_topic_may_be_deleted_while_a_broker_is_fenced() -> None:
    cluster = ThreeBrokers()
    large(cluster, 300, [2, 3])
    large(cluster, 300, [2, 3], number=6)
    fencing = cluster.controller.brokers.fence(2)
    cluster.append(list(next(fencing)))

    cluster.append([RemoveTopicRecord(topic_id=(6).to_bytes(16)), RemoveTopicRecord(topic_id=(5).to_bytes(16))])
    cluster.run(fencing)

    assert cluster.is_fenced(2)


def test_a_new_incarnation_that_registers_during_the_fencing_of_the_first_is_not_fenced_for_it() -> None:
    cluster = ThreeBrokers()
    large(cluster, 1_000, [2, 3])
    fencing = cluster.controller.brokers.fence(2)
    cluster.append(list(next(fencing)))
    cluster.register(2, incarnation=7)

    cluster.run(fencing)
    cluster.heartbeat(2)

    assert not cluster.is_fenced(2)


def test_a_new_incarnation_that_registers_before_the_fencing_of_the_first_begins_is_spared() -> None:
    cluster = ThreeBrokers()
    cluster.partition(2, 3, isr=(2,))
    fencing = cluster.controller.brokers.fence(2)
    cluster.register(2, incarnation=7)
    cluster.heartbeat(2)

    cluster.run(fencing)

    assert not cluster.is_fenced(2) and cluster.image.leader == 2
    assert cluster.controller.heartbeats.has_session(2, cluster.epochs[2], cluster.now_ms)


def test_nothing_is_given_to_a_broker_that_is_fenced_again_while_it_takes_over() -> None:
    cluster = ThreeBrokers()
    large(cluster, 1_000, [2])
    cluster.run(cluster.controller.brokers.fence(2))
    request = BrokerHeartbeatRequest(broker_id=2, broker_epoch=cluster.epochs[2], current_metadata_offset=cluster.offset)
    taking_over = cluster.controller.brokers.heartbeat(request, lambda: cluster.offset, cluster.now_ms)
    while cluster.is_fenced(2):
        cluster.append(list(next(taking_over)))

    cluster.run(cluster.controller.brokers.fence(2))
    cluster.run(taking_over)

    assert cluster.is_fenced(2)
    assert {image.leader for image in cluster.controller.state.topics["large-5"].partitions} == {NO_LEADER}


def collect(cluster: Cluster, steps: Any) -> Any:
    for records in steps:
        cluster.append(list(records))
        yield records
