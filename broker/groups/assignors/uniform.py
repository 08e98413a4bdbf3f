"""The uniform assignor, for members that all subscribe to the same topics (Kafka's UniformHomogeneousAssignmentBuilder).

The members' partition counts differ by one at most, and each member keeps as many of its partitions as that allows: balance comes before
stickiness. Racks are ignored, as in Kafka 4. uniform_heterogeneous.py has the part for members with different topics.
"""

from __future__ import annotations

from itertools import islice

from broker.groups.assignors.specification import GroupSpecification, Partitions

NAME = "uniform"

_TopicPartition = tuple[bytes, int]


def assign(group: GroupSpecification) -> dict[str, Partitions]:
    if not group.is_homogeneous:
        from broker.groups.assignors.uniform_heterogeneous import HeterogeneousAssignment

        return HeterogeneousAssignment(group).assign()
    topic_ids = next((member.topic_ids for member in group.members.values()), ())
    return _HomogeneousAssignment(group, topic_ids).assign() if topic_ids else {}


class _HomogeneousAssignment:
    """One computation."""

    def __init__(self, group: GroupSpecification, topic_ids: tuple[bytes, ...]) -> None:
        self._group = group
        self._topic_ids = dict.fromkeys(topic_ids)
        self._targets: dict[str, Partitions] = {}
        self._unassigned: list[_TopicPartition] = []
        self._unfilled: list[tuple[str, int]] = []  # members, and how many partitions each may still get
        total = sum(group.partition_counts[topic_id] for topic_id in topic_ids)
        self._quota, self._extra_count = divmod(total, len(group.members))

    def assign(self) -> dict[str, Partitions]:
        self._find_unassigned()
        members_left = len(self._group.members)
        for member_id, member in self._group.members.items():
            quota = self._quota + (self._extra_count > 0)
            has_extra = self._extra_count > 0
            kept, left = self._keep(member.partitions, quota)
            self._targets[member_id] = kept
            if left > 0 and has_extra and members_left > self._extra_count:
                # Another member may take the extra partition, unless all remaining members need one.
                left -= 1
                has_extra = False
            if left > 0:
                self._unfilled.append((member_id, left))
            self._extra_count -= has_extra
            members_left -= 1
        self._fill()
        return self._targets

    def _find_unassigned(self) -> None:
        assigned: dict[bytes, set[int]] = {topic_id: set() for topic_id in self._topic_ids}
        for member in self._group.members.values():
            for topic_id, partitions in member.partitions.items():
                if topic_id in assigned:
                    assigned[topic_id] |= partitions
        for topic_id, taken in assigned.items():
            count = self._group.partition_counts[topic_id]
            self._unassigned += [(topic_id, partition) for partition in range(count) if partition not in taken]

    def _keep(self, partitions: Partitions, quota: int) -> tuple[Partitions, int]:
        """The partitions that a member keeps (the same object if it keeps all), and how many more it may get."""
        if sum(map(len, partitions.values())) <= quota and all(topic_id in self._topic_ids for topic_id in partitions):
            return partitions, quota - sum(map(len, partitions.values()))
        kept: dict[bytes, frozenset[int]] = {}
        for topic_id in sorted(partitions):
            if topic_id not in self._topic_ids:
                continue
            numbers = sorted(partitions[topic_id])
            kept_numbers, dropped = numbers[:quota], numbers[quota:]
            quota -= len(kept_numbers)
            if kept_numbers:
                kept[topic_id] = frozenset(kept_numbers)
            self._unassigned += [(topic_id, number) for number in dropped]
        return kept, quota

    def _fill(self) -> None:
        unassigned = iter(self._unassigned)
        for member_id, left in self._unfilled:
            added: dict[bytes, list[int]] = {}
            for topic_id, partition in islice(unassigned, left):
                added.setdefault(topic_id, []).append(partition)
            if added:
                target = dict(self._targets[member_id])
                for topic_id, partitions in added.items():
                    target[topic_id] = target.get(topic_id, frozenset()).union(partitions)
                self._targets[member_id] = target
        assert next(unassigned, None) is None, "partitions were left unassigned"
