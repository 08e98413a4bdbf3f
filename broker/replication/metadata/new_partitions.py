"""Partitions that the metadata knows and that are not made yet: making one takes half a millisecond, and a topic may have thousands.

The ReplicaManager alone adds and takes them; those who created a topic hear when all of it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker.replication.countdown import countdown

PartitionName = tuple[str, int]


class NewPartitions:
    """The partitions that wait to be made, oldest first, but those of very large additions last."""

    __slots__ = ("_counts", "_listeners", "_names", "_ranges")

    def __init__(self) -> None:
        self._names: dict[PartitionName, None] = {}
        self._ranges: dict[str, _Range] = {}
        self._counts: dict[str, int] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def __iter__(self) -> Iterator[PartitionName]:
        yield from self._names
        for topic, waiting in self._ranges.items():
            for index in waiting:
                yield topic, index

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __contains__(self, name: PartitionName) -> bool:
        return name in self._names or (name[0] in self._ranges and name[1] in self._ranges[name[0]])

    def add(self, name: PartitionName) -> None:
        if name not in self:
            self._names[name] = None
            self._counts[name[0]] = self._counts.get(name[0], 0) + 1

    def add_range(self, topic: str, start: int, stop: int) -> None:
        """Add the topic's partitions from `start` on, none of which waits yet, in no more time than one of them takes."""
        waiting = self._ranges.setdefault(topic, _Range(start, start))
        waiting.add(start, stop)
        self._counts[topic] = self._counts.get(topic, 0) + stop - start

    def discard(self, name: PartitionName) -> None:
        """`name` waits no more. If it was its topic's last, its waiters are called back at once, inside the caller's operation."""
        if name not in self:
            return
        topic, index = name
        if name in self._names:
            del self._names[name]
        else:
            self._ranges[topic].discard(index)
        self._counts[topic] -= 1
        if self._counts[topic] == 0:
            self._forget(topic)

    def _forget(self, topic: str) -> None:
        del self._counts[topic]
        self._ranges.pop(topic, None)
        for callback in self._listeners.pop(topic, ()):
            callback()

    def discard_topics(self, topics: Iterable[str]) -> None:
        """The topics are gone."""
        waiting = {topic for topic in topics if topic in self._counts}
        if not waiting:
            return
        self._names = {name: None for name in self._names if name[0] not in waiting}
        for topic in waiting:
            self._forget(topic)

    def clear(self) -> None:
        """Make nothing more, and call no callback."""
        self._names.clear()
        self._ranges.clear()
        self._counts.clear()
        self._listeners.clear()

    def when_none_of(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        """Call `callback`, once, when no partition of the topics waits, perhaps at once."""
        waiting = {topic for topic in topics if topic in self._counts}
        note_made = countdown(len(waiting), callback)
        for topic in waiting:
            self._listeners.setdefault(topic, []).append(note_made)


class _Range:
    """Indexes from `start` to `stop`, exclusive, but for those that are `taken`."""

    __slots__ = ("_start", "_stop", "_taken")

    def __init__(self, start: int, stop: int) -> None:
        self._start = start
        self._stop = stop
        self._taken: set[int] = set()

    def __iter__(self) -> Iterator[int]:
        return (index for index in range(self._start, self._stop) if index not in self._taken)

    def __contains__(self, index: int) -> bool:
        return self._start <= index < self._stop and index not in self._taken

    def add(self, start: int, stop: int) -> None:
        """More, behind those that are here."""
        self._taken.update(range(self._stop, start))
        self._stop = stop

    def discard(self, index: int) -> None:
        self._taken.add(index)
        while self._start in self._taken:
            self._taken.discard(self._start)
            self._start += 1
