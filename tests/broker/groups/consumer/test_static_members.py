"""Static members of KIP-848 groups: leaving for a while, coming back under another member id, being fenced."""

from __future__ import annotations

from tests.broker.groups.consumer.consumers import Consumers


def one_static_member(**config: int) -> Consumers:
    """a1, whose instance is a."""
    consumers = Consumers(**config)
    consumers.join_consumer("a1", instance_id="a")
    consumers.skip()
    return consumers


def test_member_that_is_back_under_another_id_gets_its_place_without_a_new_assignment():
    consumers = one_static_member()

    consumers.leave_consumer("a1", -2, instance_id="a")
    consumers.expect("log: assignment a1 STABLE epoch=-2 after=0 owns t:0,1", "a1 epoch=-2")
    consumers.join_consumer("a2", instance_id="a")

    consumers.expect(
        "log: assignment a1 gone",
        "log: target a1 gone",
        "log: member a1 gone",
        "log: member a2 t instance=a",
        "log: target a2 t:0,1",
        "log: assignment a2 STABLE epoch=0 after=0 owns t:0,1",
        "log: member a2 t instance=a",
        "log: assignment a2 STABLE epoch=2 after=0 owns t:0,1",
        "a2 epoch=2 owns t:0,1",
    )


def test_member_that_is_back_may_commit_what_it_had_in_any_epoch():
    consumers = one_static_member()
    topic_id = consumers.metadata.topics["t"].topic_id

    consumers.leave_consumer("a1", -2, instance_id="a")
    consumers.join_consumer("a2", instance_id="a")

    assert consumers.group.members["a2"].assigned == {topic_id: {0: 0, 1: 0}}


def test_member_that_is_back_under_another_id_has_one_vote_for_its_assignor():
    """Two votes for range would win over the one for uniform; of one each it is uniform."""
    consumers = Consumers()
    for name in ("u", "v"):
        consumers.create_topic(name, partitions=3)
    consumers.join_consumer("a1", "u", instance_id="a", server_assignor="range")
    consumers.join_consumer("b", "u,v", server_assignor="uniform")
    consumers.leave_consumer("a1", -2, instance_id="a")

    consumers.join_consumer("a2", "u,v", instance_id="a", server_assignor="range")

    assert {sum(map(len, target.values())) for target in consumers.group.targets.values()} == {3}, "range gives 4 and 2"


def test_instance_whose_member_is_there_is_not_released():
    consumers = one_static_member()

    consumers.join_consumer("a2", instance_id="a")

    consumers.expect("error UNRELEASED_INSTANCE_ID")


def test_member_that_was_replaced_is_fenced():
    consumers = one_static_member()
    consumers.leave_consumer("a1", -2, instance_id="a")
    consumers.join_consumer("a2", instance_id="a")
    consumers.skip()

    consumers.beat("a1", member_epoch=2, instance_id="a")
    consumers.leave_consumer("a1", instance_id="a")

    consumers.expect("error FENCED_INSTANCE_ID", "error FENCED_INSTANCE_ID")


def test_member_that_does_not_come_back_is_removed_when_its_session_ends():
    consumers = one_static_member(consumer_session_timeout_ms=45_000)
    consumers.leave_consumer("a1", -2, instance_id="a")
    consumers.skip()

    consumers.advance(45_000)

    consumers.expect("log: assignment a1 gone", "log: target a1 gone", "log: member a1 gone", "log: group epoch=3")


def test_unknown_instance():
    consumers = one_static_member()

    consumers.beat("b", member_epoch=1, instance_id="b")

    consumers.expect("error UNKNOWN_MEMBER_ID")
