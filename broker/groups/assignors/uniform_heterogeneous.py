"""The uniform assignor's part for members that subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).

Unassigned partitions go to the subscriber with the fewest partitions. Then, topic by topic, partitions move from the subscribers with the
most to those with the fewest, until a round moves none, at most 16 rounds. The result need not be the best possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from broker.groups.assignors.specification import GroupSpecification, Partitions

ROUNDS_MAX = 16

NOBODY = -1


class HeterogeneousAssignment:
    """One computation. Members are numbered in their order."""

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._member_ids = list(group.members)
        self._sizes = [0] * len(self._member_ids)
        self._subscribers: dict[bytes, list[int]] = {}
        self._owners: dict[bytes, list[int]] = {}

    def assign(self) -> dict[str, Partitions]:
        self._find_subscribers()
        if not self._subscribers:
            return {}
        self._keep()
        self._assign_unassigned()
        self._balance()
        return self._targets()

    def _find_subscribers(self) -> None:
        by_subscription: defaultdict[tuple[bytes, ...], list[int]] = defaultdict(list)  # most members subscribe to the same
        for index, member in enumerate(self._group.members.values()):
            by_subscription[member.topic_ids].append(index)
        for topic_ids, indexes in by_subscription.items():
            for topic_id in topic_ids:
                self._subscribers.setdefault(topic_id, []).extend(indexes)
        for subscribers in self._subscribers.values():
            subscribers.sort()
        self._owners = {topic_id: [NOBODY] * self._group.partition_counts[topic_id] for topic_id in self._subscribers}

    def _keep(self) -> None:
        """Members keep their partitions of topics that they subscribe to."""
        subscriptions = {member.topic_ids: frozenset(member.topic_ids) for member in self._group.members.values()}
        for index, member in enumerate(self._group.members.values()):
            subscribed = subscriptions[member.topic_ids]
            for topic_id, partitions in member.partitions.items():
                if topic_id in subscribed:
                    self._sizes[index] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = index

    def _assign_unassigned(self) -> None:
        unassigned = {}
        for topic_id, owners in self._owners.items():
            unassigned[topic_id] = [partition for partition, owner in enumerate(owners) if owner == NOBODY]
        for topic_id in self._in_order([topic_id for topic_id, partitions in unassigned.items() if partitions]):
            balancer = _Balancer(self._subscribers[topic_id], self._sizes)
            for partition in unassigned[topic_id]:
                self._move(topic_id, partition, balancer.next_least_loaded())

    def _in_order(self, topic_ids: list[bytes]) -> list[bytes]:
        """The topics with the most partitions per subscriber come first, of equal ones those with the fewest subscribers."""

        def order(topic_id: bytes) -> tuple[float, int, bytes]:
            subscriber_count = len(self._subscribers[topic_id])
            return -self._group.partition_counts[topic_id] / subscriber_count, subscriber_count, topic_id

        return sorted(topic_ids, key=order)

    def _balance(self) -> None:
        topic_ids = self._in_order([topic_id for topic_id, subscribers in self._subscribers.items() if len(subscribers) >= 2])
        last_moved: bytes | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topic_ids:
                if topic_id == last_moved:
                    return  # a whole round moved nothing
                moved_count = self._balance_topic(topic_id)
                if moved_count or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: bytes) -> int:
        """Move partitions of the topic between its subscribers. Returns how many moved."""
        subscribers = self._subscribers[topic_id]
        sizes = [self._sizes[index] for index in subscribers]
        if max(sizes) - min(sizes) <= 1:
            return 0
        balancer = _Balancer(subscribers, self._sizes)
        by_owner: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            by_owner.setdefault(owner, []).append(partition)
        moved_count = 0
        while not balancer.is_balanced:
            giver = balancer.next_most_loaded(by_owner)
            if giver == NOBODY:
                break
            partition = by_owner[giver].pop()
            taker = balancer.next_least_loaded()
            if balancer.is_balanced:
                break
            self._move(topic_id, partition, taker)
            moved_count += 1
        return moved_count

    def _move(self, topic_id: bytes, partition: int, taker: int) -> None:
        giver = self._owners[topic_id][partition]
        if giver != NOBODY:
            self._sizes[giver] -= 1
        self._owners[topic_id][partition] = taker
        self._sizes[taker] += 1

    def _targets(self) -> dict[str, Partitions]:
        owned: list[dict[bytes, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                owned[owner].setdefault(topic_id, []).append(partition)
        targets: dict[str, Partitions] = {}
        for member_id, topics in zip(self._member_ids, owned, strict=True):
            targets[member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
        return targets


class _Balancer:
    """Chooses the subscriber that gets the next partition, and the one that gives the next partition away.

    The subscribers are sorted by how many partitions they have. The subscribers with the fewest form a range at the left end, those with
    the most a range at the right end. When each member of the left range has got a partition, its level rises by one and the members at
    that level join the range; the right range likewise gives. The caller owns `sizes` and changes it with every move.
    """

    def __init__(self, subscribers: list[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._members = sorted(subscribers, key=sizes.__getitem__)  # the subscribers are in ascending order: so are those of one size
        self._least_end = 0
        self._least_level = sizes[self._members[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._members)
        self._most_level = sizes[self._members[-1]] + 1
        self._next_most = len(self._members) - 1

    @property
    def is_balanced(self) -> bool:
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_level += 1
            while self._least_end < len(self._members) and self._sizes[self._members[self._least_end]] == self._least_level:
                self._least_end += 1
            self._next_least = 0
        index = self._members[self._next_least]
        self._next_least += 1
        return index

    def next_most_loaded(self, partitions: Mapping[int, Sequence[int]]) -> int:
        """The most loaded subscriber that owns some of these `partitions` of the topic, which are by owner. NOBODY if there is none."""
        members, sizes, place = self._members, self._sizes, self._next_most
        while True:
            if place < self._most_start:
                if self._most_end <= self._most_start and self._most_start > 0:
                    # All members of the range are excluded: continue at the next level that exists.
                    self._most_level = sizes[members[self._most_start - 1]]
                else:
                    self._most_level -= 1
                while self._most_start > 0 and sizes[members[self._most_start - 1]] == self._most_level:
                    self._most_start -= 1
                place = self._most_end - 1
            if place < 0:
                return NOBODY
            index = members[place]
            if partitions.get(index):
                self._next_most = place - 1
                return index
            # This subscriber has no partition to give and is excluded from the range.
            self._most_end = last = self._most_end - 1
            members[place], members[last] = members[last], index
            place -= 1
