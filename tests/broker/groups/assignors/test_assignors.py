"""The server-side assignors: what every member gets, what it keeps, and how even it is."""

from __future__ import annotations

import random

import pytest

from broker.groups.assignors import range as range_assignor
from broker.groups.assignors import uniform
from broker.groups.assignors.specification import GroupSpecification, MemberSpecification, Partitions

T, U, V = b"t", b"u", b"v"


def specification(counts: dict[bytes, int], members: dict[str, tuple[bytes, ...]], before: dict[str, Partitions] | None = None):
    subscriptions = set(members.values())
    return GroupSpecification(
        {name: MemberSpecification(None, topics, (before or {}).get(name, {})) for name, topics in members.items()},
        {topic: counts[topic] for topics in members.values() for topic in topics},
        len(subscriptions) <= 1,
    )


def sizes(targets: dict[str, Partitions]) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in targets.values())


def owned(targets: dict[str, Partitions]) -> list[tuple[bytes, int]]:
    return sorted((topic, number) for target in targets.values() for topic, numbers in target.items() for number in numbers)


def everything(counts: dict[bytes, int]) -> list[tuple[bytes, int]]:
    return sorted((topic, number) for topic, count in counts.items() for number in range(count))


def test_uniform_gives_all_partitions_and_to_each_as_many():
    targets = uniform.assign(specification({T: 5, U: 6}, dict.fromkeys("abc", (T, U))))

    assert sizes(targets) == [3, 4, 4]
    assert owned(targets) == everything({T: 5, U: 6})


def test_uniform_keeps_what_balance_allows():
    before = uniform.assign(specification({T: 6}, dict.fromkeys("ab", (T,))))

    targets = uniform.assign(specification({T: 6}, dict.fromkeys("abc", (T,)), before))

    assert sizes(targets) == [2, 2, 2]
    assert all(targets[name][T] < before[name][T] for name in "ab")


def test_uniform_changes_nothing_when_nothing_changed():
    members = dict.fromkeys("abc", (T,))
    before = uniform.assign(specification({T: 7}, members))

    after = uniform.assign(specification({T: 7}, members, before))

    assert all(after[name] is before[name] for name in members)


def test_uniform_spreads_topics_that_only_some_read():
    targets = uniform.assign(specification({T: 4, U: 4}, {"a": (T,), "b": (T, U), "c": (U,)}))

    assert sizes(targets) == [2, 3, 3]
    assert owned(targets) == everything({T: 4, U: 4})


@pytest.mark.parametrize("seed", range(10))
def test_heterogeneous_targets_are_whole_subscribed_and_sticky(seed: int):
    source = random.Random(seed)
    counts = {topic: source.randint(1, 12) for topic in (T, U, V)}
    names = [f"m{index}" for index in range(source.randint(1, 6))]
    members = {name: tuple(sorted(source.sample((T, U, V), source.randint(1, 3)))) for name in names}
    counts = {topic: counts[topic] for topics in members.values() for topic in topics}

    targets = uniform.assign(specification(counts, members)._replace(is_homogeneous=False))
    again = uniform.assign(specification(counts, members, targets)._replace(is_homogeneous=False))

    assert owned(targets) == everything(counts)
    assert all(topic in members[name] for name, target in targets.items() for topic in target)
    assert again == targets


def test_range_gives_equal_ranges_of_each_topic():
    targets = range_assignor.assign(specification({T: 4, U: 3}, dict.fromkeys("ba", (T, U))))

    assert targets == {"a": {T: {0, 1}, U: {0, 1}}, "b": {T: {2, 3}, U: {2}}}


def test_range_puts_static_members_first():
    group = specification({T: 2}, dict.fromkeys("ab", (T,)))
    members = {"a": group.members["a"], "b": group.members["b"]._replace(instance_id="z")}

    targets = range_assignor.assign(group._replace(members=members))

    assert targets == {"b": {T: {0}}, "a": {T: {1}}}


def test_range_leaves_members_beyond_the_partitions_without():
    targets = range_assignor.assign(specification({T: 2}, {"a": (T,), "b": (T,), "c": (T,)}))

    assert targets == {"a": {T: {0}}, "b": {T: {1}}, "c": {}}
