"""Partitions that the metadata knows and that are not created yet: creating one takes half a millisecond, and a topic may have thousands.

Only the BrokerMetadataPublisher adds and removes them. Callers that created a topic are called back when all of it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker.replication.countdown import countdown

PartitionName = tuple[str, int]


class NewPartitions:
    """The partitions that wait to be created, oldest first; those of very large additions come last."""

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
        """Add a range of partitions in constant time. None of them may be waiting yet."""
        waiting = self._ranges.setdefault(topic, _Range(start, start))
        waiting.add(start, stop)
        self._counts[topic] = self._counts.get(topic, 0) + stop - start

    def discard(self, name: PartitionName) -> None:
        """Remove `name`. If it was the last waiting partition of its topic, the topic's callbacks are called before this returns."""
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
        """Remove deleted topics."""
        waiting = {topic for topic in topics if topic in self._counts}
        if not waiting:
            return
        self._names = {name: None for name in self._names if name[0] not in waiting}
        for topic in waiting:
            self._forget(topic)

    def clear(self) -> None:
        """Remove everything without calling a callback."""
        self._names.clear()
        self._ranges.clear()
        self._counts.clear()
        self._listeners.clear()

    def when_none_of(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
        """Call `callback` once when no partition of the topics waits any more, or now if none does."""
        waiting = {topic for topic in topics if topic in self._counts}
        note_made = countdown(len(waiting), callback)
        for topic in waiting:
            self._listeners.setdefault(topic, []).append(note_made)


class _Range:
    """The indexes from `start` to `stop` (exclusive), without those in `taken`."""

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
        """Add indexes behind the present ones."""
        self._taken.update(range(self._stop, start))
        self._stop = stop

    def discard(self, index: int) -> None:
        self._taken.add(index)
        while self._start in self._taken:
            self._taken.discard(self._start)
            self._start += 1
