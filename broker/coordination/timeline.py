"""Timeline: the committed state of a shard's dicts, while appended records are not committed yet (Kafka's SnapshotRegistry and
TimelineHashMap).

The dicts themselves hold the state as written, on which operations compute. For each key that an uncommitted write changed, the timeline
keeps the value before it. Readers that must see committed state only call `committed(mapping)`.

Changes are kept only between `record` and `stop_recording`. A broker whose appends are committed at once records nothing, and a change
costs one comparison. A change is never undone: a lost write ends the shard with all of its state.

A Shard owns it. Only replay changes the dicts, through `put` and `remove`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

Change = tuple[dict[Any, Any], Any]
"""A dict and the key in it."""

_ABSENT: Any = object()

_Before = dict[Any, deque[Any]]
"""For each changed key its value before each write that changed it, oldest first: the first is the committed value."""


class Timeline:
    """See the module's docstring."""

    __slots__ = ("_before", "_recorded")

    def __init__(self) -> None:
        self._recorded: list[Change] | None = None
        self._before: dict[int, _Before] = {}  # by the identity of a dict, which a write in flight keeps alive

    # Changing.

    def put(self, mapping: dict[Key, Value], key: Key, value: Value) -> None:
        if self._recorded is not None:
            self._note(mapping, key, mapping.get(key, _ABSENT))
        mapping[key] = value

    def remove(self, mapping: dict[Key, Value], key: Key) -> None:
        """Remove the key, if it is there."""
        if key not in mapping:
            return
        if self._recorded is not None:
            self._note(mapping, key, mapping[key])
        del mapping[key]

    def record_added(self, mapping: dict[Key, Value], key: Key) -> None:
        """Note that the operation whose records are being replayed has put the key into the dict."""
        if self._recorded is not None:
            self._note(mapping, key, _ABSENT)

    def _note(self, mapping: dict[Key, Value], key: Key, before: Any) -> None:
        assert self._recorded is not None, "only a write in flight is noted"
        self._recorded.append((mapping, key))
        self._before.setdefault(id(mapping), {}).setdefault(key, deque()).append(before)

    # Writes in flight.

    def record(self) -> None:
        """Begin a write: the changes from now on are not committed."""
        assert self._recorded is None, "one write is replayed at a time"
        self._recorded = []

    def stop_recording(self) -> list[Change]:
        """The changes since `record`. The caller gives them to `commit`, in the order of the log."""
        changes = self._recorded
        assert changes is not None, "nothing is recorded"
        self._recorded = None
        return changes

    def commit(self, changes: Sequence[Change]) -> None:
        """The oldest write in flight, with these changes, is committed."""
        for mapping, key in changes:
            before = self._before[id(mapping)]
            before[key].popleft()
            if not before[key]:
                del before[key]
            if not before:
                del self._before[id(mapping)]

    # Reading what is committed.

    def committed(self, mapping: Mapping[Key, Value]) -> Mapping[Key, Value]:
        """The dict as committed: the dict itself, unless a write in flight changed it. Valid until the next change, so read it at once."""
        before = self._before.get(id(mapping)) if self._before else None
        return mapping if before is None else _Committed(mapping, before)

    def is_committed(self, mapping: Mapping[Key, Value], key: Key) -> bool:
        """Whether no write in flight changed what the dict holds, or held, for this key."""
        before = self._before.get(id(mapping)) if self._before else None
        return before is None or key not in before

    def committed_values(self, mapping: dict[Key, Value]) -> list[Value]:
        """The committed values of a dict that may be large."""
        view = self.committed(mapping)
        return list((view.copied() if isinstance(view, _Committed) else mapping).values())


class _Committed(Mapping[Key, Value]):
    """A dict without the changes of writes in flight."""

    __slots__ = ("_before", "_mapping")

    def __init__(self, mapping: Mapping[Key, Value], before: _Before) -> None:
        self._mapping = mapping
        self._before = before

    def __getitem__(self, key: Key) -> Value:
        before = self._before.get(key)
        if before is None:
            return self._mapping[key]
        value: Value = before[0]
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[Key]:
        return iter(self.copied())

    def __len__(self) -> int:
        return len(self.copied())

    def copied(self) -> dict[Key, Value]:
        copied = dict(self._mapping)
        for key, before in self._before.items():
            if before[0] is _ABSENT:
                copied.pop(key, None)
            else:
                copied[key] = before[0]
        return copied
