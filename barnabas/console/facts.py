"""What the console knows of a cluster at one moment. Snapshots are made by one thread and never changed after: every page may read them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]


class PartitionFacts(NamedTuple):
    """Of partition `number`. `leader` is -1 without one."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """As Metadata tells it."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionFacts, ...]

    @property
    def replicas(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        return sum(len(each.isr) < len(each.replicas) for each in self.partitions)

    @property
    def without_leader(self) -> int:
        return sum(each.leader < 0 for each in self.partitions)


class BrokerFacts(NamedTuple):
    """A broker that is registered and not fenced."""

    id: int
    host: str
    port: int
    rack: str | None


class Directory(NamedTuple):
    """A log directory. Bytes are None where the broker does not tell them (before KIP-827)."""

    broker: int
    path: str
    state: str
    size_bytes: int
    usable_bytes: int | None
    total_bytes: int | None
    replicas: int


@dataclass(frozen=True, slots=True)
class Group:
    """`offsets` are the committed ones; `lag` is None while an end is not known. `error` says why offsets are not told."""

    name: str
    state: str
    kind: str
    coordinator: int
    offsets: Mapping[Partition, int]
    lag: int | None
    error: str = ""

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.offsets})


@dataclass(frozen=True)
class Snapshot:
    """Everything at `time_s` (since 1970). `sizes` are of all replicas; None where brokers do not tell them."""

    time_s: float
    cluster_id: str
    controller: int
    brokers: tuple[BrokerFacts, ...]
    topics: Mapping[str, Topic]
    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    sizes: Mapping[Partition, int] | None
    directories: tuple[Directory, ...]
    groups: Mapping[str, Group]
    duration_s: float
    """How long the asking took."""
    complaints: tuple[str, ...] = field(default=())
    """What could not be learned, in a line each."""

    @functools.cached_property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @functools.cached_property
    def under_replicated(self) -> list[str]:
        return [
            f"{name}-{each.number}"
            for name, topic in self.topics.items()
            for each in topic.partitions
            if len(each.isr) < len(each.replicas)
        ]

    @functools.cached_property
    def without_leader(self) -> list[str]:
        return [f"{name}-{each.number}" for name, topic in self.topics.items() for each in topic.partitions if each.leader < 0]

    @functools.cached_property
    def readers(self) -> Mapping[str, list[str]]:
        """The groups that have committed offsets of each topic."""
        found: dict[str, list[str]] = {}
        for group in self.groups.values():
            for topic in group.topics:
                found.setdefault(topic, []).append(group.name)
        return found

    @functools.cached_property
    def records(self) -> Mapping[str, int | None]:
        """Of each topic by its offsets; None while a bound is not known."""
        return {name: self._records_of(topic) for name, topic in self.topics.items()}

    @functools.cached_property
    def topic_sizes(self) -> Mapping[str, int]:
        """Bytes on all disks; empty if they are not told."""
        total: dict[str, int] = {}
        for (name, _), size_bytes in (self.sizes or {}).items():
            total[name] = total.get(name, 0) + size_bytes
        return total

    def _records_of(self, topic: Topic) -> int | None:
        count = 0
        for each in topic.partitions:
            start, end = self.starts.get((topic.name, each.number)), self.ends.get((topic.name, each.number))
            if start is None or end is None:
                return None
            count += end - start
        return count
