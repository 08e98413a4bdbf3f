"""Partitions that the metadata knows and that are not made yet: making one takes half a millisecond, and a topic may have thousands.

The ReplicaManager alone adds and takes them; those who created a topic hear when all of it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker.replication.countdown import countdown

PartitionName = tuple[str, int]


class NewPartitions:
    """The partitions that wait to be made, oldest first."""

    __slots__ = ("_counts", "_listeners", "_names")

    def __init__(self) -> None:
        self._names: dict[PartitionName, None] = {}
        self._counts: dict[str, int] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def __iter__(self) -> Iterator[PartitionName]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: PartitionName) -> bool:
        return name in self._names

    def add(self, name: PartitionName) -> None:
        if name not in self._names:
            self._names[name] = None
            self._counts[name[0]] = self._counts.get(name[0], 0) + 1

    def discard(self, name: PartitionName) -> None:
        """`name` waits no more; who waited for its topic's last is told, in the middle of whatever goes on."""
        if name not in self._names:
            return
        del self._names[name]
        topic = name[0]
        self._counts[topic] -= 1
        if self._counts[topic] == 0:
            del self._counts[topic]
            for callback in self._listeners.pop(topic, ()):
                callback()

    def discard_topics(self, topics: Iterable[str]) -> None:
        """The topics are gone."""
        waiting = {topic for topic in topics if topic in self._counts}
        for name in [name for name in self._names if name[0] in waiting] if waiting else ():
            self.discard(name)

    def clear(self) -> None:
        """Nothing is made any more, and nobody is told."""
        self._names.clear()
        self._counts.clear()
        self._listeners.clear()

    def when_none_of(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        """Call `callback`, once, when no partition of the topics waits, perhaps at once."""
        waiting = {topic for topic in topics if topic in self._counts}
        note_made = countdown(len(waiting), callback)
        for topic in waiting:
            self._listeners.setdefault(topic, []).append(note_made)
