"""Groups that read by regular expressions: when they are resolved, what is stored, what the members are told."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.consumer.regular_expressions import REFRESH_MIN_INTERVAL_MS
from protocol.messages.stored.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from tests.broker.groups.consumer.consumers import Consumers


def join(consumers: Consumers, name: str, regex: str, topics: str = "", **fields: Any) -> None:
    consumers.join_consumer(name, topics, **({"subscribed_topic_regex": regex} | fields))


def let_turns_pass(consumers: Consumers) -> None:
    consumers.advance(0)


def with_a(regex: str = "t.*", **config: Any) -> Consumers:
    """a reads t by a regular expression, in epoch 3 as its group."""
    consumers = Consumers(**config)
    join(consumers, "a", regex)
    let_turns_pass(consumers)
    consumers.settle("a")
    return consumers


def test_topics_are_looked_for_after_the_answer():
    consumers = Consumers()

    join(consumers, "a", "t.*")
    let_turns_pass(consumers)
    consumers.beat("a")

    consumers.expect(
        "log: member a  regex=t.*",
        "log: assignment a STABLE epoch=1 after=0 owns nothing",
        "a epoch=1 owns nothing",
        "log: regex t.* t",
        "log: group epoch=2",
        "log: target a t:0,1",
        "log: targets epoch=2",
        "log: assignment a STABLE epoch=2 after=1 owns t:0,1",
        "a epoch=2 owns t:0,1",
    )


def test_expression_that_is_known_bumps_the_epoch_at_once():
    consumers = with_a()

    join(consumers, "b", "t.*")

    consumers.expect_last(
        "log: group epoch=3",
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=3",
        "log: assignment b UNRELEASED_PARTITIONS epoch=3 after=0 owns nothing",
        "b epoch=3 owns nothing",
    )


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_member_whose_expression_is_not_resolved_yet_takes_nothing_from_others(assignor: str):
    """Kafka 4.3.1 assigns here as if both read the same, until the next epoch: b gets t:1, which it does not read."""
    consumers = Consumers(consumer_assignors=(assignor,))
    join(consumers, "a", "t.*")
    let_turns_pass(consumers)
    consumers.skip()

    join(consumers, "b", "u.*")

    consumers.expect(
        "log: member b  regex=u.*",
        "log: target a t:0,1",
        "log: target b nothing",
        "log: targets epoch=2",
        "log: assignment b STABLE epoch=2 after=0 owns nothing",
        "b epoch=2 owns nothing",
    )


@pytest.mark.parametrize("regex", ["(", "(?=t)", "x" * 4_001])
def test_what_is_no_regular_expression_is_refused(regex: str):
    consumers = Consumers()

    join(consumers, "a", regex)

    consumers.expect("error INVALID_REGULAR_EXPRESSION")


def test_new_topics_are_found_with_the_next_heartbeat_but_not_too_often():
    consumers = with_a()
    consumers.create_topic("t2")
    consumers.beat("a")
    let_turns_pass(consumers)
    consumers.expect("a epoch=2")

    consumers.advance(REFRESH_MIN_INTERVAL_MS + 1)
    consumers.beat("a")
    let_turns_pass(consumers)
    consumers.beat("a")

    consumers.expect(
        "a epoch=2",
        "log: regex t.* t,t2",
        "log: group epoch=3",
        "log: target a t2:0 t:0,1",
        "log: targets epoch=3",
        "log: assignment a STABLE epoch=3 after=2 owns t2:0 t:0,1",
        "a epoch=3 owns t2:0 t:0,1",
    )


def test_new_topics_that_do_not_match_bump_no_epoch():
    consumers = with_a()
    consumers.create_topic("u")
    consumers.advance(REFRESH_MIN_INTERVAL_MS + 1)

    consumers.beat("a")
    let_turns_pass(consumers)
    consumers.beat("a")
    let_turns_pass(consumers)

    consumers.expect("a epoch=2", "log: regex t.* t", "a epoch=2")


def test_topics_are_looked_for_again_after_the_refresh_interval():
    consumers = with_a(regex_refresh_interval_ms=30_000)

    consumers.advance(30_000)
    consumers.beat("a")
    let_turns_pass(consumers)
    consumers.expect("a epoch=2")
    consumers.advance(1)
    consumers.beat("a")
    let_turns_pass(consumers)

    consumers.expect("a epoch=2", "log: regex t.* t")


def test_topics_are_looked_for_again_when_the_clock_was_set_back():
    consumers = with_a()

    consumers.clock.jump_wall(-3_600_000)
    consumers.beat("a")
    let_turns_pass(consumers)

    consumers.expect("a epoch=2", "log: regex t.* t")


def test_deleted_topic_is_taken_away_at_once():
    consumers = with_a()
    consumers.delete_topic("t")

    consumers.beat("a")

    consumers.expect_last("log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns nothing revokes ?:0,1", "a epoch=2 owns nothing")


def test_last_member_of_an_expression_takes_it_along():
    consumers = with_a()
    join(consumers, "b", "u.*", "t")
    consumers.advance(REFRESH_MIN_INTERVAL_MS + 1)
    consumers.beat("b")
    let_turns_pass(consumers)
    consumers.settle("a", "b")

    consumers.leave_consumer("b")

    assert "log: regex u.* gone" in consumers.lines
    assert set(consumers.group.regular_expressions) == {"t.*"}


def test_member_that_changes_its_expression_gives_up_what_it_does_not_read_any_more():
    consumers = with_a()

    consumers.beat("a", subscribed_topic_regex="u.*")
    consumers.beat("a")
    let_turns_pass(consumers)

    consumers.expect(
        "log: member a  regex=u.*",
        "log: regex t.* gone",
        "log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns nothing revokes t:0,1",
        "a epoch=2 owns nothing",
        "a epoch=2",
        "log: regex u.* ",
        "log: group epoch=3",
    )


def test_member_that_reads_by_no_expression_any_more_bumps_the_epoch():
    consumers = with_a()

    consumers.beat("a", subscribed_topic_regex="")

    consumers.expect(
        "log: member a",
        "log: regex t.* gone",
        "log: group epoch=3",
        "log: target a nothing",
        "log: targets epoch=3",
        "log: assignment a UNREVOKED_PARTITIONS epoch=2 after=2 owns nothing revokes t:0,1",
        "a epoch=2 owns nothing",
    )


def test_names_and_expressions_together():
    consumers = Consumers()
    consumers.create_topic("u")
    join(consumers, "a", "t.*", "u")
    let_turns_pass(consumers)
    consumers.settle("a")

    assert consumers.shares() == {"a": "t:0,1 u:0"}


def test_what_was_resolved_is_what_a_restart_finds():
    consumers = with_a()

    consumers.restart()
    consumers.beat("a")

    consumers.expect("a epoch=2")
    assert consumers.group.is_subscribed_to("t")


def test_member_that_left_before_the_topics_were_found_leaves_nothing_behind():
    consumers = Consumers()
    join(consumers, "a", "t.*")

    consumers.leave_consumer("a")
    let_turns_pass(consumers)

    consumers.expect_last("log: regex t.* gone", "log: group epoch=2", "a epoch=-1")


def test_coordinator_that_loses_its_partition_finds_no_topics():
    consumers = Consumers()
    join(consumers, "a", "t.*")
    consumers.skip()

    consumers.coordinator.runtime.on_resigned(0)
    let_turns_pass(consumers)

    consumers.expect()


@pytest.mark.usefixtures("one_step_in_each_turn")
def test_very_many_topics_are_looked_at_in_pieces():
    consumers = Consumers()
    for number in range(1_000):
        consumers.create_topic(f"t{number}")
    join(consumers, "a", "t.*")
    turns = 0
    while not consumers.group.regular_expressions:
        consumers.take_turn()
        turns += 1

    assert turns > 1_000
    assert len(consumers.group.regular_expressions["t.*"].topics) == 1_001


def test_restarted_metadata_of_brokers_is_no_reason_to_look():
    consumers = with_a()
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="host", port=9092, security_protocol=0)
    consumers.metadata.apply_committed([RegisterBrokerRecord(broker_id=1, end_points=[endpoint], rack=None, fenced=False)])
    consumers.advance(REFRESH_MIN_INTERVAL_MS + 1)

    consumers.beat("a")
    let_turns_pass(consumers)

    consumers.expect("a epoch=2")
