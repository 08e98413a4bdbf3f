"""Target assignments: those of all members are one batch, and the answer that made one due tells it, however large the group."""

from __future__ import annotations

import pytest

from broker.groups.consumer.topics import GroupTopics
from tests.broker.groups.consumer.consumers import Consumers

PARTITIONS = 4_000


def large_group(*names: str) -> Consumers:
    """Members that read a topic of many partitions."""
    consumers = Consumers()
    consumers.create_topic("large", PARTITIONS)
    for name in names:
        consumers.join_consumer(name, "large")
    return consumers


def counts(consumers: Consumers) -> dict[str, int]:
    """How many partitions each member's target has."""
    return {name: sum(map(len, target.values())) for name, target in sorted(consumers.group.targets.items())}


def test_targets_of_all_members_are_one_batch():
    consumers = large_group("a")
    batches = len(consumers.log.batches)

    consumers.join_consumer("b", "large")

    assert counts(consumers) == {"a": PARTITIONS // 2, "b": PARTITIONS // 2}
    assert len(consumers.log.batches) == batches + 1


def test_member_that_reads_what_others_read_needs_no_hash(monkeypatch: pytest.MonkeyPatch):
    consumers = large_group("a")
    consumers.settle("a")  # the first heartbeat after the group came to be looks at its topics
    before = consumers.group.metadata_hash
    monkeypatch.setattr(GroupTopics, "hash_of", None)

    consumers.join_consumer("b", "large")

    assert (consumers.group.epoch, consumers.group.metadata_hash) == (3, before)
