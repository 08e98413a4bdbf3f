"""Places the replicas of new partitions: they are spread over racks first, then over brokers, from a random start. Pure.

Each partition's replicas start one rack further than the last one's, and within a rack one broker further, so that leaders are spread too.
Fenced brokers are used only as followers, and only where a rack has no unfenced broker left. Brokers that are shutting down are not used,
nor brokers with all log directories cordoned (KIP-1066).

Source: org.apache.kafka.metadata.placement.StripedReplicaPlacer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from broker.metadata.image import BrokerImage
from protocol.errors import ErrorCode, KafkaError


def place_replicas(
    brokers: Iterable[BrokerImage], *, partitions_count: int, replication_factor: int, random_source: random.Random
) -> Iterator[list[int]]:
    """Yields the replicas of each new partition, the preferred leader first. The call raises KafkaError INVALID_REPLICATION_FACTOR if
    there are too few brokers."""
    racks = _RackList(brokers, random_source)
    if replication_factor <= 0:
        raise _refusal(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if racks.unfenced_count == 0:
        raise _refusal("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > racks.total_count:
        raise _refusal(
            f"The target replication factor of {replication_factor} cannot be reached because only {racks.total_count} broker(s) are "
            "registered or some brokers have all their log directories cordoned."
        )
    return (racks.place(replication_factor) for _ in range(partitions_count))


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class _BrokerRing:
    """Brokers of one rack, handed out in turn; each round (one partition) starts one broker further than the last."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._index = 0
        self._offset = 0
        self._round = 0

    def initialize(self, random_source: random.Random) -> None:
        if self.brokers:
            self.brokers.sort()
            self._offset = random_source.randrange(len(self.brokers))

    def next(self, round_number: int) -> int | None:
        """The next broker of this round, None when it has handed out all."""
        if not self.brokers:
            return None
        if self._round != round_number:
            self._round = round_number
            self._index = 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self._offset) % len(self.brokers)]
        self._index += 1
        return broker


class _Rack:
    def __init__(self) -> None:
        self.unfenced = _BrokerRing()
        self.fenced = _BrokerRing()

    def next(self, round_number: int) -> int | None:
        broker = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class _RackList:
    def __init__(self, brokers: Iterable[BrokerImage], random_source: random.Random) -> None:
        self._random = random_source
        self._racks: dict[str | None, _Rack] = {}
        self.total_count = 0
        self.unfenced_count = 0
        for broker in brokers:
            if broker.is_in_controlled_shutdown and not broker.is_fenced:
                continue  # it is shutting down; once it has stopped, it is fenced and may come back
            if not broker.may_get_replicas:
                continue
            rack = self._racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.is_fenced else rack.unfenced).brokers.append(broker.node_id)
            self.total_count += 1
            self.unfenced_count += not broker.is_fenced
        # Brokers without a rack come first, then racks by name.
        self._names = sorted(self._racks, key=lambda name: (name is not None, name or ""))
        for name in self._names:
            self._racks[name].unfenced.initialize(random_source)
            self._racks[name].fenced.initialize(random_source)
        self._round = 0
        self._offset = random_source.randrange(len(self._names)) if self._names else 0

    def place(self, replication_factor: int) -> list[int]:
        if self._round == self.unfenced_count and self.unfenced_count > 1:
            # As many partitions were placed as there are unfenced brokers. Shuffle, so that the same assignments do not repeat.
            self._shuffle()
            self._round = 0
        self._offset %= len(self._names)
        leader_rack, leader = self._place_leader()
        replicas = [leader]
        rack_index = self._offset
        while len(replicas) < replication_factor:
            broker = None
            if rack_index == leader_rack:
                # The leader has had its rack's first turn. From its second turn on the rack takes part like the others.
                leader_rack = -1
            else:
                broker = self._racks[self._names[rack_index]].next(self._round)
            rack_index = (rack_index + 1) % len(self._names)
            if broker is not None:
                replicas.append(broker)
        self._round += 1
        self._offset += 1
        return replicas

    def _place_leader(self) -> tuple[int, int]:
        """Returns the first rack, from the current one on, that has an unfenced broker, and that broker. There always is one."""
        for step in range(len(self._names)):
            index = (self._offset + step) % len(self._names)
            broker = self._racks[self._names[index]].unfenced.next(self._round)
            if broker is not None:
                return index, broker
        raise AssertionError("no unfenced broker, though the caller counted one")

    def _shuffle(self) -> None:
        self._random.shuffle(self._names)
        for name in self._names:
            self._random.shuffle(self._racks[name].unfenced.brokers)
            self._random.shuffle(self._racks[name].fenced.brokers)
