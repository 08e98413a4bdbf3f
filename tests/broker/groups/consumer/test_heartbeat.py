"""Members of a KIP-848 group: joining, sharing, leaving; what is stored and what each is told."""

from __future__ import annotations

import pytest

from broker.coordination.timers import RETRY_BACKOFF_MS
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import HeartbeatTopicPartitions
from tests.broker.groups.consumer.consumers import REBALANCE_TIMEOUT_MS, Consumers


def two_settled(**config: int) -> Consumers:
    """a and b, each with one partition of t."""
    consumers = Consumers(**config)
    consumers.join_consumer("a")
    consumers.join_consumer("b")
    consumers.settle("a", "b")
    return consumers


def test_first_member_is_given_everything_in_one_heartbeat():
    consumers = Consumers()

    consumers.join_consumer("a")

    consumers.expect(
        "log: member a t",
        "log: group epoch=2",
        "log: target a t:0,1",
        "log: targets epoch=2",
        "log: assignment a STABLE epoch=2 after=0 owns t:0,1",
        "a epoch=2 owns t:0,1",
    )


def test_partition_moves_once_its_owner_has_given_it_up():
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.skip()

    consumers.join_consumer("b")
    consumers.expect(
        "log: member b t",
        "log: group epoch=3",
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=3",
        "log: assignment b UNRELEASED_PARTITIONS epoch=3 after=0 owns nothing",
        "b epoch=3 owns nothing",
    )
    consumers.beat("a")
    consumers.expect("log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns t:0 revokes t:1", "a epoch=2 owns t:0")
    consumers.beat("b")
    consumers.expect("log: assignment b UNRELEASED_PARTITIONS epoch=3 after=3 owns nothing", "b epoch=3")
    consumers.acknowledge("a")
    consumers.expect("log: assignment a STABLE epoch=3 after=2 owns t:0", "a epoch=3")
    consumers.beat("b")
    consumers.expect("log: assignment b STABLE epoch=3 after=3 owns t:1", "b epoch=3 owns t:1")


def test_heartbeat_without_news_stores_nothing():
    consumers = two_settled()

    consumers.beat("a")

    consumers.expect("a epoch=3")


def test_leaving_member_s_partitions_go_to_the_others():
    consumers = two_settled()

    consumers.leave_consumer("b")
    consumers.expect("log: assignment b gone", "log: target b gone", "log: member b gone", "log: group epoch=4", "b epoch=-1")
    consumers.beat("a")

    consumers.expect(
        "log: target a t:0,1",
        "log: targets epoch=4",
        "log: assignment a STABLE epoch=4 after=3 owns t:0,1",
        "a epoch=4 owns t:0,1",
    )


def test_member_without_heartbeats_is_fenced_when_its_session_ends():
    consumers = two_settled(consumer_session_timeout_ms=45_000)
    consumers.advance(44_000)
    consumers.beat("a")
    consumers.skip()

    consumers.advance(1_000)

    consumers.expect("log: assignment b gone", "log: target b gone", "log: member b gone", "log: group epoch=4")
    consumers.beat("b")
    consumers.expect("error UNKNOWN_MEMBER_ID")


def test_member_that_gives_nothing_up_is_fenced_after_its_rebalance_timeout():
    consumers = Consumers(consumer_session_timeout_ms=2 * REBALANCE_TIMEOUT_MS)
    consumers.join_consumer("a")
    consumers.join_consumer("b")
    consumers.beat("a")
    consumers.skip()

    consumers.advance(REBALANCE_TIMEOUT_MS - 1)
    consumers.beat("a")
    consumers.expect("a epoch=2")
    consumers.advance(1)

    consumers.expect("log: assignment a gone", "log: target a gone", "log: member a gone", "log: group epoch=4")


def test_giving_up_in_time_ends_the_rebalance_timeout():
    consumers = Consumers(consumer_session_timeout_ms=10 * REBALANCE_TIMEOUT_MS)
    consumers.join_consumer("a")
    consumers.join_consumer("b")
    consumers.settle("a", "b")

    consumers.advance(REBALANCE_TIMEOUT_MS)

    consumers.expect()


def test_epochs_that_are_not_the_member_s_are_fenced():
    consumers = two_settled()

    consumers.beat("a", member_epoch=4)
    consumers.beat("a", member_epoch=1)

    consumers.expect("error FENCED_MEMBER_EPOCH", "error FENCED_MEMBER_EPOCH")


def test_member_that_never_got_its_new_epoch_may_ask_again_with_the_old_one():
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.leave_consumer("b")
    consumers.join_consumer("b")
    consumers.beat("a")
    consumers.acknowledge("a")
    consumers.skip()
    topic_id = consumers.metadata.topics["t"].topic_id

    consumers.beat("a", member_epoch=2, topic_partitions=[HeartbeatTopicPartitions(topic_id=topic_id, partitions=[0])])

    consumers.expect("a epoch=3")


def test_rejoining_member_keeps_its_place():
    """A client that was fenced comes back at once, in epoch 0 (KAFKA-19233)."""
    consumers = two_settled()

    consumers.join_consumer("a", member_epoch=0)

    consumers.expect("a epoch=3 owns t:0")


def test_member_that_has_to_give_up_more_stays_in_its_epoch_until_it_has():
    consumers = Consumers()
    consumers.create_topic("u", partitions=3)
    for name in ("a", "b"):
        consumers.join_consumer(name, "u")
    consumers.beat("a")
    consumers.expect_last("log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns u:0,1 revokes u:2", "a epoch=2 owns u:0,1")
    consumers.join_consumer("c", "u")
    consumers.skip()

    consumers.acknowledge("a")
    consumers.expect("log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns u:0 revokes u:1", "a epoch=2 owns u:0")
    consumers.acknowledge("a")

    consumers.expect("log: assignment a STABLE epoch=4 after=2 owns u:0", "a epoch=4")


def test_uniform_is_taken_of_two_assignors_with_as_many_votes():
    """Whatever the order of group.consumer.assignors."""
    consumers = Consumers(consumer_assignors=("range", "uniform"))
    for name in ("u", "v"):
        consumers.create_topic(name, partitions=3)
    consumers.join_consumer("a", "u,v", server_assignor="range")
    consumers.skip()

    consumers.join_consumer("b", "u,v", server_assignor="uniform")

    assert {sum(map(len, target.values())) for target in consumers.group.targets.values()} == {3}, "range gives 4 and 2"


def test_unknown_member_and_unknown_group():
    consumers = Consumers()
    consumers.beat("a", member_epoch=1)
    consumers.join_consumer("a")
    consumers.skip()
    consumers.beat("nobody", member_epoch=1)
    consumers.leave_consumer("nobody")

    consumers.expect("error UNKNOWN_MEMBER_ID", "error UNKNOWN_MEMBER_ID")


def test_full_group_takes_no_more_members():
    consumers = Consumers(consumer_max_size=1)
    consumers.join_consumer("a")
    consumers.skip()

    consumers.join_consumer("b")
    consumers.beat("a")

    consumers.expect("error GROUP_MAX_SIZE_REACHED", "a epoch=2")


def test_assignor_that_is_not_configured_is_refused():
    consumers = Consumers(consumer_assignors=("uniform",))

    consumers.join_consumer("a", server_assignor="range")

    consumers.expect("error UNSUPPORTED_ASSIGNOR")


def test_assignment_waits_for_its_interval_and_the_next_heartbeat():
    """Members that come at about the same time share one assignment (KIP-1263)."""
    consumers = Consumers(consumer_assignment_interval_ms=1_000)
    consumers.join_consumer("a")
    consumers.skip()

    consumers.join_consumer("b")
    consumers.expect(
        "log: member b t", "log: group epoch=3", "log: assignment b STABLE epoch=2 after=0 owns nothing", "b epoch=2 owns nothing"
    )
    consumers.advance(1_000)
    consumers.beat("a")

    consumers.expect(
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=3",
        "log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns t:0 revokes t:1",
        "a epoch=2 owns t:0",
    )


def test_assignment_waits_for_no_clock_that_was_set_back():
    consumers = Consumers(consumer_assignment_interval_ms=1_000)
    consumers.join_consumer("a")
    consumers.clock.jump_wall(-3_600_000)
    consumers.skip()

    consumers.join_consumer("b")

    consumers.expect(
        "log: member b t",
        "log: group epoch=3",
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=3",
        "log: assignment b UNRELEASED_PARTITIONS epoch=3 after=0 owns nothing",
        "b epoch=3 owns nothing",
    )


def test_member_whose_session_ended_is_removed_when_the_log_takes_it():
    """For a while the partition of its group has too few replicas in sync."""
    consumers = two_settled(consumer_session_timeout_ms=45_000)
    consumers.advance(30_000)
    consumers.beat("b")
    consumers.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS

    consumers.advance(16_000)
    stays = list(consumers.group.members)
    consumers.log.fail_with = None
    consumers.advance(RETRY_BACKOFF_MS)

    assert (len(stays), len(consumers.group.members)) == (2, 1)


def test_member_whose_leave_was_refused_is_removed_when_its_session_ends():
    """It does not ask again. (In Kafka it stays for ever.)"""
    consumers = two_settled(consumer_session_timeout_ms=45_000)
    consumers.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    consumers.leave_consumer("a")
    consumers.log.fail_with = None
    stays = list(consumers.group.members)

    consumers.advance(30_000)
    consumers.beat("b")
    consumers.advance(15_000)

    assert (len(stays), len(consumers.group.members)) == (2, 1)


def test_new_subscription_takes_away_what_is_not_in_it_at_once():
    consumers = Consumers(consumer_assignment_interval_ms=1_000)
    consumers.create_topic("u")
    consumers.join_consumer("a", "t,u")
    consumers.skip()

    consumers.beat("a", subscribed_topic_names=["u"])

    consumers.expect(
        "log: member a u",
        "log: group epoch=3",
        "log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns u:0 revokes t:0,1",
        "a epoch=2 owns u:0",
    )


@pytest.mark.parametrize(("topics", "stored"), [([], ["log: assignment a STABLE epoch=2 after=2 owns nothing"]), (["v"], [])])
def test_member_that_subscribes_to_nothing_anew_is_in_its_epoch_alone(topics: list[str], stored: list[str]):
    """CurrentAssignmentBuilder.updateCurrentAssignment takes it for a new assignment, though it owned nothing before; not so one that
    subscribes to what does not exist."""
    consumers = Consumers(consumer_assignment_interval_ms=1_000)
    consumers.join_consumer("a", "u")
    consumers.skip()

    consumers.beat("a", subscribed_topic_names=topics)

    consumers.expect(f"log: member a {','.join(topics)}".rstrip(), "log: group epoch=3", *stored, "a epoch=2")


def test_topic_that_comes_to_be_or_grows_or_goes_moves_the_group_on():
    consumers = Consumers()
    consumers.join_consumer("a", "t,u")
    consumers.skip()

    consumers.create_topic("u", partitions=2)
    consumers.acknowledge("a")
    consumers.expect(
        "log: group epoch=3",
        "log: target a t:0,1 u:0,1",
        "log: targets epoch=3",
        "log: assignment a STABLE epoch=3 after=2 owns t:0,1 u:0,1",
        "a epoch=3 owns t:0,1 u:0,1",
    )
    consumers.delete_topic("u")
    consumers.beat("a")
    consumers.expect(
        "log: group epoch=4",
        "log: target a t:0,1",
        "log: targets epoch=4",
        "log: assignment a UNREVOKED_PARTITIONS epoch=3 after=3 owns t:0,1 revokes ?:0,1",
        "a epoch=3 owns t:0,1",
    )


def test_topic_that_nobody_reads_moves_nothing():
    consumers = two_settled()

    consumers.create_topic("other")
    consumers.beat("a")

    consumers.expect("a epoch=3")


def test_group_is_as_it_was_after_a_restart():
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.join_consumer("b")
    consumers.beat("a")
    consumers.skip()

    consumers.restart()
    consumers.acknowledge("a")
    consumers.beat("b")

    consumers.expect(
        "log: assignment a STABLE epoch=3 after=2 owns t:0",
        "a epoch=3",
        "log: assignment b STABLE epoch=3 after=3 owns t:1",
        "b epoch=3 owns t:1",
    )


def test_sessions_and_rebalance_timeouts_begin_anew_after_a_restart():
    consumers = Consumers(consumer_session_timeout_ms=2 * REBALANCE_TIMEOUT_MS)
    consumers.join_consumer("a")
    consumers.join_consumer("b")
    consumers.beat("a")
    consumers.advance(REBALANCE_TIMEOUT_MS - 1)
    consumers.restart()
    consumers.skip()

    consumers.advance(REBALANCE_TIMEOUT_MS - 1)
    consumers.expect()
    consumers.advance(1)
    consumers.expect("log: assignment a gone", "log: target a gone", "log: member a gone", "log: group epoch=4")
    consumers.advance(REBALANCE_TIMEOUT_MS)

    consumers.expect("log: assignment b gone", "log: target b gone", "log: member b gone", "log: group epoch=5")


def test_uncommitted_change_is_answered_when_it_is_committed():
    consumers = Consumers()
    consumers.log.is_holding = True

    consumers.join_consumer("a")
    assert consumers.unanswered_count == 1
    consumers.log.commit()

    consumers.expect_last("a epoch=2 owns t:0,1")


def test_empty_classic_group_makes_room():
    consumers = Consumers()
    consumers.commit(5)
    consumers.skip()

    consumers.join_consumer("a")

    consumers.expect_last("a epoch=2 owns t:0,1")
    consumers.fetch(0)
    consumers.expect("fetch t-0=5")


def test_empty_consumer_group_makes_room_for_a_classic_one():
    consumers = two_settled()
    consumers.leave_consumer("a")
    consumers.leave_consumer("b")
    consumers.skip()

    consumers.join("c")
    consumers.advance(0)

    consumers.expect(
        "log: targets gone",
        "log: partition metadata gone",
        "log: group gone",
        "log: group generation=0",
        "c join generation=1 leader=c members=c protocol=range",
    )


def test_empty_consumer_group_and_the_classic_one_in_its_place_are_one_write():
    """Between two, a fetch of the group's offsets found no group."""
    consumers = two_settled()
    consumers.leave_consumer("a")
    consumers.leave_consumer("b")
    consumers.commit(5)
    batches_count = len(consumers.log.batches)

    consumers.join("c")

    assert len(consumers.log.batches) == batches_count + 1
    consumers.restart()
    consumers.skip()
    consumers.fetch(0)
    consumers.expect("fetch t-0=5")


def test_empty_consumer_group_stays_when_a_classic_member_that_it_does_not_know_asks():
    consumers = two_settled()
    consumers.leave_consumer("a")
    consumers.leave_consumer("b")
    consumers.commit(5)
    consumers.skip()

    consumers.join("c", member_id="somebody")
    consumers.fetch(0)

    consumers.expect("c join UNKNOWN_MEMBER_ID", "fetch t-0=5")


def test_empty_consumer_group_stays_when_the_write_of_a_classic_one_is_refused():
    consumers = two_settled()
    consumers.leave_consumer("a")
    consumers.leave_consumer("b")
    consumers.commit(5)
    consumers.skip()

    consumers.log.fail_with = ErrorCode.NOT_COORDINATOR
    consumers.join("c")
    consumers.log.fail_with = None
    consumers.fetch(0)
    consumers.join_consumer("d")

    consumers.expect_last("d epoch=6 owns t:0,1")
