"""The uniform assignor's part for members that subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).

Unassigned partitions go to the subscriber with the fewest. Then, topic by topic, partitions move from the subscribers with the most to
those with the fewest, until a round moves none, or for 16 rounds. No assignment that is the best possible is promised.
"""

from __future__ import annotations

from collections.abc import Generator

from broker.groups.assignors.specification import PARTITIONS_PER_ELEMENT, PARTITIONS_PER_PIECE, Assigning, GroupSpecification, Partitions
from broker.loop.pieces import Pace

ROUNDS_MAX = 16

NOBODY = -1

Steps = Generator[None, None, None]


class HeterogeneousAssignment:
    """One computation. Members are numbered in their order."""

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._member_ids = list(group.members)
        self._sizes = [0] * len(self._member_ids)
        self._subscribers: dict[bytes, list[int]] = {}
        self._owners: dict[bytes, list[int]] = {}
        self._pace = Pace()

    def assign(self) -> Assigning:
        yield from self._find_subscribers()
        if not self._subscribers:
            return {}
        yield from self._keep()
        yield from self._assign_unassigned()
        yield from self._balance()
        return (yield from self._targets())

    def _find_subscribers(self) -> Steps:
        for index, member in enumerate(self._group.members.values()):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
                if self._pace.is_due():
                    yield
        self._owners = {topic_id: [NOBODY] * self._group.partition_counts[topic_id] for topic_id in self._subscribers}

    def _keep(self) -> Steps:
        """Members keep what they have of the topics that they subscribe to."""
        for index, member in enumerate(self._group.members.values()):
            for topic_id, partitions in member.partitions.items():
                if topic_id in member.topic_ids:
                    self._sizes[index] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = index
                if self._pace.is_due(1 + len(partitions) // PARTITIONS_PER_ELEMENT):
                    yield

    def _assign_unassigned(self) -> Steps:
        unassigned = {}
        for topic_id, owners in self._owners.items():
            unassigned[topic_id] = [partition for partition, owner in enumerate(owners) if owner == NOBODY]
            if self._pace.is_due(1 + len(owners) // PARTITIONS_PER_ELEMENT):
                yield
        for topic_id in self._in_order([topic_id for topic_id, partitions in unassigned.items() if partitions]):
            balancer = _Balancer(self._subscribers[topic_id], self._sizes)
            for partition in unassigned[topic_id]:
                self._move(topic_id, partition, balancer.next_least_loaded())
                if self._pace.is_due():
                    yield
            if self._pace.is_due(self._cost_of(topic_id)):
                yield

    def _cost_of(self, topic_id: bytes) -> int:
        """Of sorting a topic's subscribers and looking at its partitions, in elements."""
        return 1 + (len(self._subscribers[topic_id]) + len(self._owners[topic_id])) // PARTITIONS_PER_ELEMENT

    def _in_order(self, topic_ids: list[bytes]) -> list[bytes]:
        """Those with the most partitions for each subscriber come first, then those with the fewest subscribers."""

        def order(topic_id: bytes) -> tuple[float, int, bytes]:
            subscriber_count = len(self._subscribers[topic_id])
            return -self._group.partition_counts[topic_id] / subscriber_count, subscriber_count, topic_id

        return sorted(topic_ids, key=order)

    def _balance(self) -> Steps:
        topic_ids = self._in_order([topic_id for topic_id, subscribers in self._subscribers.items() if len(subscribers) >= 2])
        last_moved: bytes | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topic_ids:
                if topic_id == last_moved:
                    return  # a whole round moved nothing
                moved_count = yield from self._balance_topic(topic_id)
                if moved_count or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: bytes) -> Generator[None, None, int]:
        """How many partitions moved."""
        balancer = _Balancer(self._subscribers[topic_id], self._sizes)
        if self._pace.is_due(self._cost_of(topic_id)):
            yield
        if balancer.imbalance <= 1:
            return 0
        by_owner: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            by_owner.setdefault(owner, []).append(partition)
            if partition % PARTITIONS_PER_PIECE == 0:
                yield
        moved_count = 0
        while not balancer.is_balanced:
            giver = balancer.next_most_loaded()
            while giver != NOBODY and not by_owner.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.next_most_loaded()
            if giver == NOBODY:
                break
            partition = by_owner[giver].pop()
            taker = balancer.next_least_loaded()
            if balancer.is_balanced:
                break
            self._move(topic_id, partition, taker)
            moved_count += 1
            if self._pace.is_due():
                yield
        return moved_count

    def _move(self, topic_id: bytes, partition: int, taker: int) -> None:
        giver = self._owners[topic_id][partition]
        if giver != NOBODY:
            self._sizes[giver] -= 1
        self._owners[topic_id][partition] = taker
        self._sizes[taker] += 1

    def _targets(self) -> Assigning:
        owned: list[dict[bytes, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                owned[owner].setdefault(topic_id, []).append(partition)
                if partition % PARTITIONS_PER_PIECE == 0:
                    yield
        targets: dict[str, Partitions] = {}
        for member_id, topics in zip(self._member_ids, owned, strict=True):
            targets[member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            if self._pace.is_due(1 + len(topics)):
                yield
        return targets


class _Balancer:
    """Tells which subscriber gets the next partition, and which one gives the next away.

    The subscribers are sorted by how many partitions they have. Those at the left end with equally few form one range, those at the right
    end with equally many another. The left one takes a partition for each of its members, then its level is one higher, and the
    members that are at that level join it; the right one likewise gives. `sizes` is the caller's, who changes it with every move.
    """

    def __init__(self, subscribers: list[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._members = sorted(subscribers, key=lambda index: (sizes[index], index))
        self.imbalance = sizes[self._members[-1]] - sizes[self._members[0]]
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

    def next_most_loaded(self) -> int:
        """NOBODY when nobody has a partition of this topic to give."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of the range were excluded: it goes on with the next level, wherever that is.
                self._most_level = self._sizes[self._members[self._most_start - 1]]
            else:
                self._most_level -= 1
            while self._most_start > 0 and self._sizes[self._members[self._most_start - 1]] == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return NOBODY
        index = self._members[self._next_most]
        self._next_most -= 1
        return index

    def exclude_most_loaded(self) -> None:
        """The one that was told last has nothing to give."""
        place, last = self._next_most + 1, self._most_end - 1
        self._members[place], self._members[last] = self._members[last], self._members[place]
        self._most_end -= 1
