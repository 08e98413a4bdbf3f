"""The range assignor: each member gets one range of each topic's partitions, so that topics with equally many partitions are split alike
(Kafka's RangeAssignor of the group coordinator).

Members are sorted by instance id, followed by the members without one, sorted by member id. The assignment is not sticky.
"""

from __future__ import annotations

from collections import Counter

from broker.groups.assignors.specification import GroupSpecification, MemberSpecification, Partitions

NAME = "range"


def assign(group: GroupSpecification) -> dict[str, Partitions]:
    members = dict(sorted(group.members.items(), key=_order))
    subscriber_counts: Counter[bytes] = Counter()
    for member in members.values():
        subscriber_counts.update(member.topic_ids)
    quotas = {topic_id: divmod(group.partition_counts[topic_id], count) for topic_id, count in subscriber_counts.items()}
    given: Counter[bytes] = Counter()  # members so far that got partitions of the topic
    targets: dict[str, Partitions] = {}
    for member_id, member in members.items():
        target: dict[bytes, frozenset[int]] = {}
        for topic_id in member.topic_ids:
            quota, extra_count = quotas[topic_id]
            place = given[topic_id]
            given[topic_id] += 1
            start = place * quota + min(place, extra_count)
            end = start + quota + (place < extra_count)
            if start < end:
                target[topic_id] = frozenset(range(start, end))
        targets[member_id] = target
    return targets


def _order(item: tuple[str, MemberSpecification]) -> tuple[bool, str]:
    member_id, member = item
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)
